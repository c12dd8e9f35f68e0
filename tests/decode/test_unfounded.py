"""What an answer says and the document does not."""

import pytest

from ondevice.decode.unfounded import MOST, lacking, unfounded

PAGES = (
    "The lens of 1886 has 224 prisms. Keeper until 30 April: Halvard\nBrekke. Keeper from 1 May: Sigrun Aas.",
    "It cost 12,500 crowns, 3.5 times as much. “We have seen\nno ship since Monday,” she wrote in Ålesund's paper.",
)


@pytest.mark.parametrize(
    ("answer", "missing"),
    [
        ("It has 224 prisms.", ()),
        ("It has 22 prisms.", ("22",)),
        ("It has 22, no: 2244 prisms of 1886.", ("22", "2244")),
        ("It cost 12500 crowns, 12,500 or 12\u202f500.", ()),
        ("It cost 12,501 crowns, 3.5 or 35 times.", ("12,501", "35")),
        ("The keeper is Sigrun Aas.", ()),
        ("The keeper is SIGRUN AAS, says Ålesund's paper.", ()),
        ("The keeper is Sigrun Brekke.", ()),
        ("It was read in the Cro Wns and the Cro Wn Prince.", ("Cro Wn Prince",)),  # one word of the text in two
        ("The keeper is Ingrid Aas. It was Peter's lamp.", ("Ingrid Aas", "Peter's")),
        ("Perhaps somebody knows.", ()),
        ("Mrs Ingrid Lund keeps it.", ("Ingrid Lund",)),
        ("She wrote “We have seen no ship since Monday.”", ()),
        ("She wrote “We have seen a ship since Monday”.", ("“We have seen a ship since Monday”",)),
        ("1. Sigrun Aas\n2. Halvard Brekke\n3) 7 others", ("7",)),
        ("", ()),
        ("That is not in the document.", ()),
    ],
)
def test_what_stands_nowhere_is_named(answer, missing):
    assert unfounded(answer, "Who keeps the light?", PAGES) == missing


def test_what_the_question_says_is_not_looked_up():
    assert unfounded("Of Captain Nemo and 1999 it says nothing.", "Was Nemo captain in 1999?", PAGES) == ()


def test_only_so_many_are_named_and_each_once():
    many = unfounded(" and ".join(str(number) for number in range(5000, 5100)) + " and 5000", "?", PAGES)
    assert many == tuple(str(number) for number in range(5000, 5000 + MOST))


def test_a_long_text_takes_no_time():
    pages = ["word " * 200_000] * 8  # 8 million letters
    assert unfounded("It is 17 for Sigrun Aas.", "?", pages) == ("17", "Sigrun Aas")
    assert lacking("Is it 170 for Sigrun Aas?", [*pages, "Größe"]) == ("170", "Sigrun Aas")


def test_marks_between_digits_are_those_of_any_language():
    pages = ("Er zahlt 1.500,00 Euro und 12,5 % um 3.30 Uhr.",)
    assert unfounded("It is 1500, 1,500 or 12.5 at 3:30, not 15 or 250.", "", pages) == ("15", "250")


@pytest.mark.parametrize(
    ("answer", "missing"),
    [
        ("It ran from 2015-2018 for 3 months.", ()),
        ("The sum is USD 5 or 4 million euros.", ()),
        ("It begins on January 5, in October and on 3 March.", ()),
        ("It ends in April, May or August.", ("April", "August")),
        ("O'Brien said \"it isn't so\" to Mrs Lund.", ()),
        ("It was said by Mr. Brekke in 6 weeks.", ("Brekke", "6")),
    ],
)
def test_other_spellings_of_the_same_are_found(answer: str, missing: tuple[str, ...]) -> None:
    pages = (
        "From 2015\u20132018, for three months: $5 and 4 Mio. \u20ac on Jan. 05. It may end on 2018-10-14 or 03/03/19.",
        "O\u2019Brien said to Ingrid Lund: \u201cIt isn\u2019t so.\u201d",
    )
    assert unfounded(answer, "?", pages) == missing


def test_nouns_of_a_german_answer_are_no_names():
    answer = "Wie im Vertrag steht, ist die Frist drei Monate, und Ingrid Lund zahlt."
    assert unfounded(answer, "Wie lang ist die Frist?", ("The notice period is three months.",)) == ("Ingrid Lund",)


def test_a_long_quotation_is_looked_up_as_a_whole() -> None:
    text = "Word search is fast. " * 20 + "It ranks passages by their rarest words, and by nothing else."
    right = "“" + "Word search is fast. " * 12 + "It ranks passages by their rarest words”"
    assert not unfounded(f"{right} (page 1)", "What of 1?", [text])
    assert unfounded(right.replace("rarest", "longest"), "What of 1?", [text])


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ("It is 1.5 million dollars.", "a sum of $1,500,000 is due"),
        ("It is 1,500,000 dollars.", "a sum of 1.5 million dollars"),
        ("Es sind 2,5 Millionen, heißt es dort und da.", "2.500.000 Euro"),
        ("Es sind 2.500.000 Euro.", "2,5 Mio. Euro"),
        ("It has 12 thousand members.", "12,000 members"),
        ("It has 12,000 members.", "12 thousand members"),
        ("It has 2 billion.", "$2,000,000,000"),
    ],
)
def test_a_number_with_its_scale_is_that_in_figures(answer: str, text: str) -> None:
    assert unfounded(answer, "", [text]) == ()


@pytest.mark.parametrize("text", ["a sum of 1.5 million", "1.6 billion", "16 million", "1.60 thousand, 160,000"])
def test_another_scale_is_another_number(text: str) -> None:
    assert unfounded("It is 1,600,000 dollars.", "", [text]) == ("1,600,000",)


@pytest.mark.parametrize(
    ("question", "missing"),
    [
        ("Who is Ingrid Lund?", ("Ingrid Lund",)),
        ("Did Captain Nemo keep the light in 1999?", ("Captain Nemo", "1999")),
        ("Where does Sigrun Aas live?", ()),
        ("What did Alesund's paper say?", ()),  # typed without its mark
        ("Where does Sigrum Aas live?", ()),  # mistyped
        ("What did it cost in Aalesund?", ()),
        ("What is the top-5 accuracy of GPT-4?", ("top-5", "GPT-4")),
        ("What does the 10-K say of the 1886s?", ("10-K",)),
        ("I'd like a summary in English, in 100 words, of page 250, please.", ()),
        ("Name 5 keepers of the Light House or the Hal Vard.", ("Light House",)),
        ("How many prisms do the Fresnels have?", ("Fresnels",)),
        ("What of the Keep-Er, the 224 Prismations and Sig-Run?", ()),
        ('What of the "Volume Restriction"?', ()),
        ("What Is The Yearly Salary Of The Keeper?", ()),
        ("WHAT IS THE YEARLY SALARY?", ()),
        ("Wer ist der Leuchtturm und die Linse?", ()),
        (f"{'Passage: It is. ' * 20}Who is Ingrid Lund?", ()),
        ("", ()),
    ],
)
def test_what_a_question_names_is_looked_up(question, missing):
    assert lacking(question, PAGES) == missing
