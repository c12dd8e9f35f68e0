import pytest

from ondevice.search.places import asks_for_whole


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
