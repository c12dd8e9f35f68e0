"""Sentences of an answer against the passages: which supports one, and which says otherwise."""

import pytest

from ondevice.decode.support import check
from ondevice.events import Source
from ondevice.search.tables import Row

TEXT = (
    "The lens of 1886 has 224 prisms. It was repaired once, in 1931, by a watchmaker of Bergen. "
    "The keeper from 1 May is Sigrun Aas. Pets are not allowed in the cabin. The rent is $430 a month.",
    "The new feature of Emily Howell compared to Emmy is that Emily Howell does not necessarily remain in a single, "
    "already known style. The lamp burned 22 litres of oil a night, and the keeper before her was Halvard Brekke. "
    + "The ship sailed past the island and the sea was calm. "
    * 30,
)
SOURCES = [
    Source(text, 1, 0, 1, 0, 1, 0.4, 0.1)
    for text in (
        "The lens of 1886 has 224 prisms. It was repaired once, in 1931, by a watchmaker of Bergen.",
        "Pets are not allowed in the cabin.",
        "The new feature of Emily Howell compared to Emmy is that Emily Howell does not necessarily remain in a "
        "single, already known style.",
        "The keeper from 1 May is Sigrun Aas.",
        "The rent is $430 a month.",
    )
]


def found(answer: str, question: str = "What does it say?") -> list[tuple[int, bool]]:
    return [(one.passage, one.agrees) for one in check(answer, question, SOURCES, TEXT)]


@pytest.mark.parametrize(
    ("answer", "passage"),
    [
        ("The lens has 224 prisms.", 0),
        ("It was repaired by a watchmaker of Bergen in 1931.", 0),
        ("No, pets are not allowed in the cabin.", 1),
        ("From 1 May the keeper is Sigrun Aas.", 3),
        ("Emily Howell does not remain in a known style.", 2),
        ("The rent is $430.", 4),
    ],
)
def test_a_sentence_has_the_number_of_the_passage_that_supports_it(answer: str, passage: int) -> None:
    assert found(answer) == [(passage, True)]


@pytest.mark.parametrize(
    ("answer", "question", "passage"),
    [
        ("The lens of 1886 has 242 prisms.", "How many prisms has the lens?", 0),
        ("It has 242 prisms.", "How many prisms has the lens?", 0),
        ("It was repaired in 1913.", "When was the lens repaired by a watchmaker?", 0),
        ("The keeper from 1 May is Ingrid Lund.", "Who is keeper from 1 May?", 3),
        ("Pets are allowed in the cabin.", "Are pets allowed in the cabin?", 1),
        ("The new feature of Emily Howell compared to Emmy is that she is a female.", "What is new?", 2),
        ("The rent is $340 a month.", "What is the rent?", 4),
    ],
)
def test_what_a_passage_says_otherwise_is_found(answer: str, question: str, passage: int) -> None:
    assert found(answer, question) == [(passage, False)]


@pytest.mark.parametrize(
    ("answer", "question"),
    [
        ("That is not in the document.", "How many prisms has the lens?"),
        ("It burned 22 litres.", "How much oil did the lamp burn?"),  # which no passage says, and the document does
        ("The keeper before her was Halvard Brekke.", "Who was keeper?"),
        ("Somebody knows that.", "Who?"),
        ("The keeper asked 3 ships to wait.", "What did the keeper do?"),
        ("The cabin is comfortable.", "How is the cabin?"),
        ("Cats sleep in the cabin.", "What sleeps there?"),
        ("", "What?"),
    ],
)
def test_what_no_passage_is_about_is_neither(answer: str, question: str) -> None:
    assert found(answer, question) == []


def test_every_sentence_has_its_own_and_ends_where_its_number_goes() -> None:
    answer = "The lens has 224 prisms. Nobody knows why. Pets are allowed in the cabin.\n"
    first, second = check(answer, "What?", SOURCES, TEXT)
    assert [answer[: one.stop].rsplit(" ", 1)[-1] for one in (first, second)] == ["prisms.", "cabin."]
    assert second.text == "Pets are not allowed in the cabin."
    assert check(answer, "What?", (), TEXT) == ()


ROWS = [
    Row(0, 0, 0, ("Klinte", "12.5", "1,300", "7"), ("Lamp", "Height", "Oil", "Wicks")),
    Row(0, 0, 0, ("Visby", "14.5", "1,500", "9"), ("Lamp", "Height", "Oil", "Wicks")),
]
TABLE = Source(
    "Lamp | Height | Oil | Wicks Klinte | 12.5 | 1,300 | 7 Visby | 14.5 | 1,500 | 9", 1, 0, 1, 0, 1, 0.4, 0.1
)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("The lamp of Klinte burns 1300.", ("Lamp: Klinte; Oil: 1,300.", True)),
        ("Klinte burns 1,300 and Visby 1,500.", ("Lamp: Klinte; Oil: 1,300.", True)),
        ("It burns 12.5.", ("Lamp: Klinte; Oil: 1,300.", False)),
        ("It burns 9.", ("Lamp: Visby; Oil: 1,500.", False)),
        ("It burns much.", None),
    ],
)
def test_a_figure_of_another_column_is_said_otherwise(answer: str, expected: tuple[str, bool] | None) -> None:
    question = "How much oil do the lamps of Klinte and Visby burn?"
    cited = check(answer, question, [SOURCES[1], TABLE], TEXT, ROWS)
    assert [(one.passage, one.text, one.agrees) for one in cited] == ([(1, *expected)] if expected else [])
    assert not [one for one in check(answer, question, [SOURCES[1]], TEXT, ROWS) if "Lamp" in one.text]


def test_a_payment_in_brackets_is_told_without_its_sign() -> None:
    text = "Gains | 5,120 | 6,100 Dividends | (8,587) | (9,369) Balance | 7,007"
    other = "Gains | 4,200 | 5,300 Dividends | (7,728) | (8,439) Balance | 9,009"
    passages = [Source(one, 1, 0, 1, 0, 1, 0.4, 0.1) for one in (other, text)]
    filler = "The ship sailed past the island and the sea was calm. " * 30
    row = Row(0, 0, 0, ("Dividends", "(8,587)", "(9,369)"), ("", "Earnings", "Total"))
    asked, answer = "How much were dividends of earnings?", "The dividends of earnings were 8,587."
    (one,) = check(answer, asked, passages, (f"{text} {filler} {other}",), [row])
    assert (one.passage, one.text, one.agrees) == (1, "Dividends; Earnings: (8,587).", True)
    assert all(one.agrees for one in check(answer, asked, passages, (f"{text} {filler} {other}",)))


@pytest.mark.parametrize(
    ("answer", "text", "agrees"),
    [
        ("Pets are allowed with written consent.", "Pets are not allowed without written consent.", True),
        ("Pets are allowed.", "Pets are not allowed without written consent.", None),
        ("Pets are allowed in the cabin.", "Pets are not allowed in the cabin.", False),
        ("Invoice 4471 is due in June.", "Invoice No 4471 is due in June.", True),
        ("The notice period is 3 months.", "The notice period is three months.", True),
        ("Profit was 12 million crowns.", "Profit was 12 thousand crowns.", False),
        ("Profit was 12 million crowns.", "Profit was 12 million crowns.", True),
        ("The net result was 3.4 million crowns.", "The net result was -3.4 million crowns.", None),
        ("The net result was 3.4 million crowns.", "The net result was (3.4) million crowns.", None),
        ("The net profit was 3.4 million crowns.", "The net loss was 3.4 million crowns.", None),
        ("Sales rose by 12 percent in March.", "Sales fell by 12 percent in March.", None),
        ("Sales fell by 12 percent in March.", "Sales fell by 12 percent in March.", True),
        ("He worked there in 2019-2023.", "He worked there in 2019-2023.", True),
        ("Six workers were hurt in the mine.", "Three workers were hurt in the mine.", False),
        ("Die Frist beträgt sechs Monate.", "Die Frist beträgt drei Monate.", False),
        ("The two companies signed the contract.", "The companies signed the contract on 5 May.", None),
        ("Das Amt beginnt am 1. Mai 2022.", "Das Amt beginnt am 1. März 2022.", False),
        ("The term begins on January 5, 2020.", "The term begins on Jan. 5, 2020.", True),
        ("Die Wahl ist am 3. Mai um 18:30 Uhr.", "Die Wahl ist am 3. Mai um 18.30 Uhr.", True),
        ("Der Umsatz betrug 1250,5 Millionen Euro.", "Der Umsatz betrug 1.250,5 Mio. EUR.", True),
        ("The fee is $25,000 a year.", "The fee is USD 25,000 a year.", True),
        ("The fee is USD 25,000 a year.", "The fee is $25,000 a year.", True),
        ("The signal was red for 12 hours.", "The signal was red for 12 minutes.", False),
        ("The signal was red for 12 min.", "The signal was red for 12 minutes.", True),
        ("Sein Gewinn sank im Mai um 12 Prozent.", "Sein Gewinn stieg im Mai um 12 Prozent.", None),
        (
            "The tenant may not sublet the flat without consent.",
            "The tenant may not sublet the flat without consent, which may not be withheld.",
            True,
        ),
        ("Yes, the tenant may sublet the flat.", "The tenant may not sublet the flat without consent.", None),
        ("The keeper of the lamp is Mr. Lund.", "The keeper of the lamp is Mr. Aas.", False),
        ("Hunde sind nicht erlaubt.", "Hunde sind nicht erlaubt. Katzen sind ohne Vertrag nicht zulässig.", True),
    ],
)
def test_what_denies_and_what_counts_is_read_as_it_is_meant(answer: str, text: str, agrees: bool | None) -> None:
    filler = "The ship sailed past the island and the sea was calm. " * 30
    cited = check(answer, "What does it say?", [Source(text, 1, 0, 1, 0, 1, 1.0, 1.0)], (f"{text} {filler}",))
    assert [one.agrees for one in cited] == ([] if agrees is None else [agrees])
