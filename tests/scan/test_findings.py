"""Findings: what stands in the document, each thing once, with its places."""

from __future__ import annotations

import pytest

from ondevice.scan.chunks import Chunk, chunks
from ondevice.scan.findings import Findings, named, split_row, stands_in
from tests.scan.test_chunks import tokens_of

PAGES = (
    "Ann Lee came first. Nobody saw Tom Hale, who was late.",
    "Later ann  lee left; code KX-4821 was used, and KX-48 too.",
)


def findings_of(*things: str, size: int = 500) -> Findings:
    tokens = tokens_of(*PAGES)
    findings = Findings(tokens)
    for chunk in chunks(tokens, size, 8):
        for thing in things:
            findings.add(chunk, thing)
    return findings


def test_one_thing_in_several_places_is_one_finding() -> None:
    findings = findings_of("Ann Lee", "ann lee", "the Ann Lee", size=40)
    (found,) = findings.found
    assert found.text == "Ann Lee"
    assert [(place.page, place.passage) for place in found.places] == [
        (2, "Ann Lee came first."),
        (4, "Later ann lee left; code KX-4821 was used, and KX-48 too."),
    ]
    for place in found.places:
        assert PAGES[place.index][place.start : place.stop].lower().split() == ["ann", "lee"]


def test_more_words_around_a_thing_are_no_other_thing() -> None:
    assert [one.text for one in findings_of("code KX-4821", "KX-4821").found] == ["code KX-4821"]
    assert [one.text for one in findings_of("Tom Hale", "Nobody saw Tom Hale").found] == ["Tom Hale"]


def test_what_does_not_stand_there_is_dropped() -> None:
    findings = findings_of("Eva Moss", "KX-4", "Eva Moss")
    assert not findings.found
    assert findings.dropped == ["Eva Moss", "KX-4"]


@pytest.mark.parametrize(
    ("answer", "things"),
    [
        ("- Ann Lee\n- Tom Hale", ["Ann Lee", "Tom Hale"]),
        ("1. Ann Lee.\n2) Tom Hale\n\n* Eva", ["Ann Lee", "Tom Hale", "Eva"]),
        ("- none", []),
        ("None of them is named.", []),
        ("- No. 4471\n- No Country for Old Men\n- N/A", ["No. 4471", "No Country for Old Men"]),
        ("$1,500; EUR 12,000; 12,5 %", ["$1,500", "EUR 12,000", "12,5 %"]),
        ("€1.500,00", ["€1.500,00"]),
        ("Procter & Gamble", ["Procter & Gamble"]),
        ("3. Mai 1999", ["3. Mai 1999"]),
        ('- "KX-4821"', ["KX-4821"]),
        ("2 May 1911, 3 June 1911 and 4 July 1912", ["2 May 1911", "3 June 1911", "4 July 1912"]),
        ("Ann Lee, Tom Hale, and Eva Moss", ["Ann Lee", "Tom Hale", "Eva Moss"]),
        ("", []),
    ],
)
def test_an_answer_names_things(answer: str, things: list[str]) -> None:
    assert list(named(answer)) == things


@pytest.mark.parametrize(
    ("item", "parts"),
    [
        ("May 2, 1911", 1),
        ("May 2, 1911, and June 3, 1911", 2),
        ("Lee, Ann", 1),
        ("Lee, Hale, Moss", 3),
        ("Ann Lee and Tom Hale", 2),
        ("a lamp, which was lit by the keeper of the light at dusk", 1),
        ("bread and butter", 1),
        ("£14 and £3", 2),
    ],
)
def test_a_row_is_split_and_one_thing_is_not(item: str, parts: int) -> None:
    assert len(split_row(item)) == parts


def test_words_are_looked_up_whole() -> None:
    assert stands_in("ann", "Joanna and Ann") == [(11, 14)]
    assert stands_in("a.b (c)", "x a.b\n(C) y") == [(2, 9)]
    assert stands_in(" ", "x") == []


def test_a_long_passage_is_cut_around_the_thing() -> None:
    tokens = tokens_of("word " * 200 + "KX-4821 " + "word " * 200)
    findings, text = Findings(tokens), tokens.texts[0]
    findings.add(Chunk(0, tokens.num_tokens, text, next(chunks(tokens, 5000, 0)).pieces), "KX-4821")
    passage = findings.found[0].places[0].passage
    assert "KX-4821" in passage
    assert len(passage) <= 240


def test_what_the_model_is_much_less_sure_of_is_doubtful() -> None:
    tokens = tokens_of("One two three four five.")
    findings, (chunk,) = Findings(tokens), chunks(tokens, 500, 0)
    for word, surety in (("One", 0.9), ("two", 0.8), ("three", 0.2)):
        findings.add(chunk, word, surety)
    assert not findings.doubtful  # too few to compare
    findings.add(chunk, "four", 1.2)
    assert [one.text for one in findings.found] == ["One", "two", "four"]
    assert [one.text for one in findings.doubtful] == ["three"]
    findings.add(chunk, "three", 0.7)
    assert len(findings) == 4
