import pytest

from ondevice.search.kinds import asks_for_whole, pages_named


@pytest.mark.parametrize(
    "question",
    [
        "Summarise the text.",
        "Give me a summary",
        "What is this document about?",
        "What are the main points?",
        "TL;DR",
        "Give an overview of the contract.",
        "What does the paper say?",
        "List all chapters.",
        "What has changed between A and B?",
        "Worum geht es?",
        "Fasse den Text zusammen",
    ],
)
def test_these_are_about_the_whole(question: str) -> None:
    assert asks_for_whole(question)


@pytest.mark.parametrize(
    "question",
    [
        "Who wrote it?",
        "What is the paper size of the printer?",
        "When was the lamp lit?",
        "What does article 7 say about pets?",
        "Which points did the home team score?",
        "",
    ],
)
def test_these_are_about_a_place(question: str) -> None:
    assert not asks_for_whole(question)


@pytest.mark.parametrize(
    ("question", "pages"),
    [
        ("What is on page 7?", [7]),
        ("Summarise pages 3 to 5.", [3, 4, 5]),
        ("What stands on pages 3\u20134?", [3, 4]),
        ("Was steht auf Seite 4?", [4]),
        ("What does slide 8 show?", [8]),
        ("What is the last page about?", [9]),
        ("What is on the first slide?", [3]),
        ("What is on page 2?", []),
        ("What is on page 10?", []),
        ("How many pages are there?", []),
        ("What is the price of 4 pages?", []),
        ("Which page has 7 tables?", []),
    ],
)
def test_pages_are_named_by_number_or_as_the_first_or_last(question: str, pages: list[int]) -> None:
    numbers = [3, 4, 5, 7, 8, 9]
    assert [numbers[index] for index in pages_named(question, "slide", numbers)] == pages


def test_parts_of_our_own_have_no_numbers_that_anybody_knows() -> None:
    assert not pages_named("What is in part 2, on page 2?", "part", [1, 2, 3])
    assert not pages_named("What is on page 2?", "page", [])
