import pytest

from ondevice.search.places import (
    asked_in,
    asks_for_whole,
    asks_which_page,
    end_named,
    pages_named,
    sections_named,
    told,
)

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
        ("Compare page 3 and page 5.", [3, 5]),
        ("Compare page 3 with page 9.", [3, 9]),
        ("What do pages 3, 5 and 7 discuss?", [3, 5, 7]),
        ("page 8 or 3", [3, 8]),
        ("What is on page 3 and 2023 figures?", [3]),
        ("What is on the last page of chapter 3?", []),
        ("What stands on pages 3\u20134?", [3, 4]),
        ("Was steht auf Seite 4?", [4]),
        ("What does slide 8 show?", [8]),
        ("What is the last page about?", [9]),
        ("What is on the first slide?", [3]),
        ("What is on page 2?", []),
        ("What is on page 10?", []),
        ("How many pages are there?", []),
        ("Fasse die Seiten 3 bis 5 zusammen", [3, 4, 5]),
        ("What is on p. 7?", [7]),
        ("Summarise the first three pages", [3, 4, 5]),
        ("Was steht auf den letzten zwei Folien?", [8, 9]),
        ("Summarise the last 40 pages", [3, 4, 5, 7, 8, 9]),
        ("What is the price of 4 pages?", []),
        ("Which page has 7 tables?", []),
    ],
)
def test_pages_are_named_by_number_or_as_the_first_or_last(question: str, pages: list[int]) -> None:
    numbers = [3, 4, 5, 7, 8, 9]
    found = pages_named(question, "slide", numbers)
    assert [numbers[index] for some in found for index in some] == pages


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
        ("Compare section 1.1 with clause 1.2", "1.1 It begins in May.\n1.2 It ends in June.\n"),
        ("What is in 1?", ""),
    ],
)
def test_a_section_is_what_stands_under_its_number(question: str, section: str) -> None:
    assert "".join(AGREEMENT[start:stop] for start, stop in sections_named(question, AGREEMENT)) == section


def test_a_section_is_looked_for_in_blank_lines_without_taking_long() -> None:
    assert [*sections_named("What does section 7 say?", "\n" * 300_000)] == []


@pytest.mark.parametrize("question", ["What is the last sentence?", "Wie lautet der letzte Satz?"])
def test_the_end_is_the_last_lines(question: str) -> None:
    text = "".join(f"Line {number} of a long text about lamps.\n" for number in range(100))
    start, stop = end_named(question, text)
    assert text[start:stop].startswith("Line ")
    assert stop == len(text)
    assert 700 < stop - start < 900
    for asked in (
        "What does the first line say?",
        "Who wrote this paper?",
        "Who wrote the PEP?",
        "Who is the author?",
        "What is the title of the document?",
        "Wie lautet der Titel des Dokuments?",
        "Wer ist der Autor?",
    ):
        start, stop = end_named(asked, text)
        assert (start, stop) == (0, text.index("\n", 800) + 1)
    assert end_named("Who wrote this letter to the king?", text) != (0, 0)
    for asked in (
        "What is the first line treatment for hypertension?",
        "What does the last line item cost?",
        "What is the last sentence of section 3?",
        "Who wrote the letter?",
        "Wer hat den Brief geschrieben?",
    ):
        assert end_named(asked, text) == (0, 0), asked
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
        ("Wie heißt die Datei?", '(The file is called "a.pdf" and has 2 pages.) '),
        ("How many times does Visby occur?", '(Times that the word "Visby" is in the text: 3.) '),
        ("How often is the crane of Visby mentioned?", '(Times that the words "crane of Visby" are in the text: 1.) '),
        ('How many times does "the sea" appear?', '(Times that the words "the sea" are in the text: 1.) '),
        ("How many times is the word ship mentioned?", '(Times that the word "ship" is in the text: 1.) '),
        ("How often is the word ship used?", '(Times that the word "ship" is in the text: 1.) '),
        ("How often is Visby mentioned on page 1?", ""),
        ("How often should the emergency brake be used?", ""),
        ("How many times has the vaccine been used?", ""),
        ("How many parts does the pump have?", ""),
        ("How long must the document be kept?", ""),
        ("How long is the contract?", ""),
        ("How long is it?", ""),
        ("What file name does the configuration need?", ""),
        ("How many tables does the restaurant have?", ""),
        ("What is on page 700?", "(There is no page 700: the pages are 1 to 2.) "),
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
        told(
            question,
            ["Visby, visby and Visbyland.", "A ship. The sea. The crane of VISBY", " "],
            "a.pdf",
            "page",
            range(1, 3),
        )
        == fact
    )


def test_a_question_for_a_page_needs_its_number_beside_the_text() -> None:
    assert asks_which_page("On which page is the deposit?")
    assert asks_which_page("Auf welcher Seite steht das?")
    assert asks_which_page("Auf welchen Seiten steht das?")
    assert not asks_which_page("What is on page 3?")


def test_tables_are_counted_by_their_captions_or_else_by_their_rows() -> None:
    rows = "a | b\nc | d\n\n"
    for text, number in ((rows * 2, 2), (f"Table 1: x\n{rows}{rows}Table A.2. y\nTable 1: again\n", 2), ("a | b\n", 0)):
        assert told("How many tables are there?", [text], "a.pdf", "page", [1]) == f"(Tables in the text: {number}.) "


def test_of_parts_of_our_own_no_number_is_told() -> None:
    assert (
        told("How many pages does it have?", [""], "a.txt", "part", [1, 2])
        == '(The file is called "a.txt"; it has no pages.) '
    )


@pytest.mark.parametrize(
    "question",
    ["What's this document about?", "What is this lease about?", "Sum up the document",
     "Fassen Sie das Dokument zusammen", "Liste alle Fristen auf", "Worum handelt es sich?", "Um was geht es?",
     "Was sind die Kernaussagen?", "Was sind die wichtigsten Punkte?", "Resúmeme el texto",
     "Resume este documento", "De quoi s'agit-il ?",
     "总结这份文件", "What is the main point?", "In short, what happens?",
     "What does the contract say?", "What is the main purpose of this document?",
     "What are the key findings of the study?",
     "What changed between the two?", "What does it say in three sentences?",
     "Give me a summary", "Give me the key points in three bullets"],
)  # fmt: skip
def test_a_question_may_be_about_all_of_the_text(question: str) -> None:
    assert asks_for_whole(question)


@pytest.mark.parametrize(
    "question",
    ["How much is held in short-term investments?", "Who is our main point of contact?", "When does work resume?",
     "What does his resume say about Python?", "When was the motion for summary judgment filed?",
     "What does the contract say about termination?", "What does it say about pets?",
     "What does it cover in case of fire?",
     "What does the report say on revenue in 2023?", "What is the main purpose of the escrow account?",
     "What was changed in the 2021 amendment to the notice period?", "Which drugs are in short supply?",
     "What is this fee about to change?"],
)  # fmt: skip
def test_a_question_for_a_fact_is_not(question: str) -> None:
    assert not asks_for_whole(question)


@pytest.mark.parametrize(
    ("request_", "asked", "beside"),
    [
        ("Who lit the lamp?", "Who lit the lamp?", ""),
        ("The lamp of 1912", "The lamp of 1912", ""),
        ("I rent flat 12. May I keep a dog? Thanks!", "May I keep a dog?", "I rent flat 12. Thanks!"),
        ("Use the passages.\n\nQuestion: Who lit it\nHelpful Answer:", "Who lit it", ""),
        ("Question: Who?\nAnswer: Ann.\nQUESTION:\nWhen?\nAnswer:", "When?", ""),
        ("Who is Dr. Ann Lund of St. Ives?", "Who is Dr. Ann Lund of St. Ives?", ""),
        ("", "", ""),
    ],
)
def test_the_question_in_a_request_is_told_from_what_stands_beside_it(request_: str, asked: str, beside: str) -> None:
    assert asked_in(request_) == (asked, beside)
