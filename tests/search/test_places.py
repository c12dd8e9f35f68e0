import pytest

from ondevice.search.places import asks_which_page, end_named, pages_named, section_named, told

AGREEMENT = """Crane agreement
1. Term
1.1 It begins in May.
1.2 It ends in June.
2. Fees
(a) ten euros
2.2 Late payment
10. Law
Section 11 Pets
No pets.
12 2024 77
"""


@pytest.mark.parametrize(
    ("question", "pages"),
    [
        ("What is on page 7?", [7]),
        ("Summarise pages 3 to 5.", [3, 4, 5]),
        ("Compare page 3 and page 5.", [3, 4, 5]),
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


@pytest.mark.parametrize(
    ("question", "section"),
    [
        ("What does section 1 say?", "1. Term\n1.1 It begins in May.\n1.2 It ends in June.\n"),
        ("And clause 1.1?", "1.1 It begins in May.\n"),
        (
            "Summarise section 2.",
            "2. Fees\n(a) ten euros\n2.2 Late payment\n10. Law\nSection 11 Pets\nNo pets.\n12 2024 77\n",
        ),
        ("Was steht in Abschnitt 11?", "Section 11 Pets\nNo pets.\n12 2024 77\n"),
        ("What is in section 12?", ""),  # a row of a table
        ("What is in section 7?", ""),
        ("What is in 1?", ""),
    ],
)
def test_a_section_is_what_stands_under_its_number(question: str, section: str) -> None:
    start, stop = section_named(question, AGREEMENT)
    assert AGREEMENT[start:stop] == section


@pytest.mark.parametrize("question", ["What is the last sentence?", "Wie lautet der letzte Satz?"])
def test_the_end_is_the_last_lines(question: str) -> None:
    text = "".join(f"Line {number} of a long text about lamps.\n" for number in range(100))
    start, stop = end_named(question, text)
    assert text[start:stop].startswith("Line ")
    assert stop == len(text)
    assert 700 < stop - start < 900
    for asked in ("What does the first line say?", "Who wrote this paper?", "What is the title of the document?"):
        start, stop = end_named(asked, text)
        assert (start, stop) == (0, text.index("\n", 800) + 1)
    assert end_named("Who wrote this letter to the king?", text) != (0, 0)
    assert end_named("Who wrote the song?", text) == (0, 0)
    assert end_named("What is the title of the book that she reads?", text) == (0, 0)
    assert text[stop - 1] == "\n"
    assert end_named("When was the last ship seen?", text) == (0, 0)
    assert end_named(question, "Only this.") == (0, 10)


@pytest.mark.parametrize(
    ("question", "fact"),
    [
        ("How many pages does it have?", '(The file is called "a.pdf" and has 2 pages.) '),
        ("What is the name of this file?", '(The file is called "a.pdf" and has 2 pages.) '),
        ("How many times does Visby occur?", '(Times that the word "Visby" is in the text: 3.) '),
        ('How often is "crane" mentioned?', '(Times that the word "crane" is in the text: 1.) '),
        ("How many times was he married?", ""),
        ("What is the name of the author?", ""),
        ("What is on page 2?", ""),
        ("What is the first sentence?", "(The text begins: Visby, visby and Visbyland.) "),
        ("What does the last paragraph say?", "(The text ends: The sea. The crane of VISBY) "),
        ("What does the last sentence say?", "(The text ends: The crane of VISBY) "),
        ("What is the last line of page 1?", ""),
    ],
)
def test_what_is_counted_is_told(question: str, fact: str) -> None:
    assert (
        told(question, ["Visby, visby and Visbyland.", "A ship. The sea. The crane of VISBY"], "a.pdf", "page", 2)
        == fact
    )


def test_a_question_for_a_page_needs_its_number_beside_the_text() -> None:
    assert asks_which_page("On which page is the deposit?")
    assert asks_which_page("Auf welcher Seite steht das?")
    assert not asks_which_page("What is on page 3?")


def test_tables_are_counted_by_their_captions_or_else_by_their_rows() -> None:
    rows = "a | b\nc | d\n\n"
    for text, number in ((rows * 2, 2), (f"Table 1: x\n{rows}{rows}Table A.2. y\nTable 1: again\n", 2), ("a | b\n", 0)):
        assert told("How many tables are there?", [text], "a.pdf", "page", 1) == f"(Tables in the text: {number}.) "
