"""Answers from the outline: lists of headings, one of them, and the sections that have a word; no other question."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from ondevice.search.outline import Heading, outline
from ondevice.search.structure import from_outline

PAPER = [
    "By nobody.\n## Ferries\n### 1 Introduction\nTwo boats.\n### 2 Data\n",
    "#### 2.1 Tides\nThe Moon\nis high; two  boats.\n### Results\nLate boats.\n",
]
ALL = """The document has 5 headings:

- Ferries (page 1)
  - 1 Introduction (page 1)
  - 2 Data (page 1)
    - 2.1 Tides (page 2)
  - Results (page 2)"""


def said(question: str, texts: Sequence[str] = PAPER) -> str:
    return from_outline(question, texts, lambda: outline(texts, "pdf"), lambda index: f"page {index + 1}")


@pytest.mark.parametrize(
    "question",
    [
        "List the headings.",
        "What are all the headings of this paper?",
        "Show me the table of contents",
        "How many headings does the essay have?",
        "Zeige mir das Inhaltsverzeichnis",
        "Gib mir bitte die Gliederung dieses Berichts",
        "Welche Überschriften hat das Dokument?",
    ],
)
def test_headings_are_listed_with_their_pages(question: str) -> None:
    assert said(question) == ALL


def test_a_heading_is_under_the_last_one_of_a_higher_level() -> None:
    answer = said("List the headings", ["#### Abstract\n## 1 Boats\n#### Sails\n### 1.1 Masts\n## 2 Tides\n"])
    assert [line.partition(" (")[0] for line in answer.split("\n")[2:]] == [
        "- Abstract", "- 1 Boats", "  - Sails", "  - 1.1 Masts", "- 2 Tides",
    ]  # fmt: skip


def test_sections_are_those_of_the_first_level_that_has_several() -> None:
    sections = ["Ferries", "1 Introduction", "2 Data", "Results"]
    answer = said("How many sections are there?")
    assert answer.startswith("The document has 4 sections:\n\n- Ferries (page 1)\n")
    assert [line.strip("- ").split(" (")[0] for line in answer.split("\n")[2:]] == sections


def test_a_title_that_only_begins_with_the_letters_of_a_part_is_none() -> None:
    text = "## Parties\nTwo.\n## Partial invalidity\nNone.\n"
    assert from_outline("How many parts are there?", [text], lambda: outline([text], "pdf"), str) == ""


def test_chapters_are_those_that_call_themselves_so() -> None:
    text = "".join(f"CHAPTER {number}\n\n{'word ' * 50}\n\n" for number in ("I", "II", "III"))
    answer = from_outline("Which chapters are there?", [text], lambda: outline([text], "txt"), str)
    assert answer.startswith("The document has 3 chapters:")


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("What is the third section called?", "The third section is \u201c2 Data\u201d (page 1)."),
        ("What is the title of the last section?", "The last section is \u201cResults\u201d (page 2)."),
        ("What is the tenth section called?", ""),
        ("Which section mentions the Moon?", "\u201cthe Moon\u201d stands in \u201c2.1 Tides\u201d (page 2)."),
        ("Which section mentions the word nobody?", "\u201cnobody\u201d stands in \u201cthe beginning\u201d (page 1)."),
        (
            "Which sections contain \u201cTwo boats\u201d?",
            "\u201cTwo boats\u201d stands in \u201c1 Introduction\u201d (page 1), \u201c2.1 Tides\u201d (page 2).",
        ),
        ("Which section mentions the sun?", ""),
        ("Which pages mention the boats?", "\u201cboats\u201d stands here: page 1, page 2."),
        ("Welche Seiten erwähnen den Moon?", "\u201cMoon\u201d stands here: page 2."),
        ("Which page mentions the sun?", ""),
        ("What are the parts of the ferry?", ""),
        ("What are the parts?", ""),
        ("What is the name of the second chapter's hero?", ""),
        ("List the boats.", ""),
        ("What are the sections about?", ""),
        ("Which section is about tides?", ""),
        ("Name the section on tides.", ""),
        ("What is this document about?", ""),
        ("How many sections does chapter 2 have?", ""),
        ("How many chapters does Elizabeth stay in London?", ""),
        ("How many sections do I have to sign?", ""),
        ("Can I do it in parts?", ""),
    ],
)
def test_one_heading_one_word_and_questions_for_the_model(question: str, answer: str) -> None:
    assert said(question) == answer


def test_without_headings_nothing_is_said_and_other_questions_make_no_outline() -> None:
    assert said("List the headings", ["No heading at all."]) == ""
    assert from_outline("Who wrote it?", PAPER, lambda: pytest.fail("an outline was made"), str) == ""


def test_a_long_list_says_how_many_more_there_are() -> None:
    many = [Heading(f"{number} word", 1, 0, number) for number in range(130)]
    answer = from_outline("List the headings", [], lambda: many, lambda _: "page 1")
    assert answer.startswith("The document has 130 headings:")
    assert answer.endswith("- 99 word (page 1)\n- and 30 more")
