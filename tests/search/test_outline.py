"""The outline of a text: marked headings, chapters by their names, numbers; the section that a question names."""

from __future__ import annotations

import pytest

from ondevice.search.outline import Heading, headed, heading_at, outline, sections_called
from ondevice.search.places import asks_for_whole

PROSE = "The harbour lay still that morning, and nobody spoke of the ferry. " * 3
PAPER = ["## Ferries\n### 1 Introduction\nTwo boats.\n### 2 Data\n", "#### 2.1 Tides\nHigh.\n### Results\nLate.\n"]


def titles(text: str, kind: str = "txt") -> list[str]:
    return [one.title for one in outline([text], kind)]


def section(question: str, texts: list[str], kind: str = "pdf") -> str:
    text = "".join(texts)
    found = sections_called(question, outline(texts, kind), len(text), is_whole=asks_for_whole(question))
    return "".join(text[start:stop] for start, stop in found)


def test_marked_headings_have_their_level_page_and_place() -> None:
    assert outline(PAPER, "pdf") == [
        Heading("Ferries", 1, 0, 0),
        Heading("1 Introduction", 2, 0, 11),
        Heading("2 Data", 2, 0, 41),
        Heading("2.1 Tides", 3, 1, 52),
        Heading("Results", 2, 1, 73),
    ]
    assert [headed("\fA", 1), headed("A", 9), headed("", 1)] == ["\f## A", "####### A", ""]


def test_in_markdown_code_has_no_headings_and_in_plain_text_marks_are_text() -> None:
    text = "# A #\n```\n# code\n```\nSome text\n## B\n"
    assert [(one.level, one.title) for one in outline([text], "md")] == [(1, "A"), (2, "B")]
    assert titles("## A\ntext\n") == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"CHAPTER I.\n\n{PROSE}\n\nCHAPTER II.\n\n{PROSE}", ["CHAPTER I.", "CHAPTER II."]),
        (f"Chapter 1: The Gale\n\n{PROSE}\n\nChapter 2: Calm\n\n{PROSE}", ["Chapter 1: The Gale", "Chapter 2: Calm"]),
        (f"CHAPTER I\nThe Gale\n\n{PROSE}", ["CHAPTER I The Gale"]),
        (f"Contents\n\nCHAPTER I. The Gale\n\nCHAPTER I. The Gale\n\n{PROSE}", ["CHAPTER I. The Gale"]),
        (f"1. Boats\n\n{PROSE}\n\n1.1 Sails\n\n{PROSE}\n\n2. Tides\n\n{PROSE}", ["1. Boats", "1.1 Sails", "2. Tides"]),
        (f"{PROSE}\nChapter 3 tells of the gale.\n{PROSE}", []),
        (f"{PROSE}\n\n1988 Boats\n\n7 Sails\n\n{PROSE}", []),
        (f"{PROSE}\n\n1 Take the boat, then the ferry.\n\n{PROSE}", []),
    ],
)
def test_chapters_and_numbers_stand_on_lines_of_their_own(text: str, found: list[str]) -> None:
    assert titles(text) == found


@pytest.mark.parametrize(
    ("question", "begins"),
    [
        ("What does section 2 say?", "### 2 Data"),
        ("Summarise section 2.1", "#### 2.1 Tides"),
        ("Summarise the results", "### Results"),
        ("Summarise the tides (of the Moon)", "#### 2.1 Tides"),
        ("What is in the section Introduction?", "### 1 Introduction"),
        ('What stands under "Tides"?', "#### 2.1 Tides"),
        ("What are the results of the ferry?", ""),
        ("Give an overview", ""),
        ("Summarise section 7", ""),
    ],
)
def test_a_section_is_named_by_its_number_or_title(question: str, begins: str) -> None:
    found = section(question, PAPER)
    assert found.startswith(begins)
    assert bool(found) == bool(begins)


def test_a_section_ends_where_one_of_its_level_begins() -> None:
    assert section("Summarise section 2", PAPER) == "### 2 Data\n#### 2.1 Tides\nHigh.\n"
    assert (
        section("What happens in chapter II?", [f"CHAPTER I\n\n{PROSE}\n\nCHAPTER II\n\nEnd"], "txt")
        == "CHAPTER II\n\nEnd"
    )
    assert (
        section("What happens in chapter 2?", [f"CHAPTER I\n\n{PROSE}\n\nCHAPTER II\n\nEnd"], "txt")
        == "CHAPTER II\n\nEnd"
    )


def test_a_document_that_is_asked_for_by_its_kind_is_no_section() -> None:
    texts = [f"## Report\n\n{PROSE}\n## Tides\n\n{PROSE}"]
    assert section("Summarise the report", texts) == ""
    assert section("Summarise the section Report", texts).startswith("## Report")


def test_the_heading_at_a_place() -> None:
    headings = outline(PAPER, "pdf")
    found = [heading_at(headings, at) for at in (0, 5, 30, 41, 45)]
    assert [one and one.title for one in found] == ["Ferries", "Ferries", "1 Introduction", "2 Data", "2 Data"]
    assert heading_at([], 5) is None
