"""Lines of a PDF as paragraphs: every character keeps its place, and what is no paragraph stays as it is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ondevice.documents.shown import GONE, flowing, unmarked, without_gone

PARAGRAPH = """The lamp of the tower was lit at dusk on every day of the year
and burned until the morning, as the law asked of all keepers.
Where the keeper was ill, his wife or the eldest of his children,
2 of them in most years, went up the 212 steps in his place."""
TABLE = """Harbour master of Tollen     12   1,204   98
Lighthouse of Varre Skerry    7     310   12
Customs officer of Tollen    31   2,871  104"""
LIST = """Ada Lindqvist of the harbour office in Tollen
- Jon Hale, keeper of the light on Varre Skerry
- Mary Ekman, who kept the books of both places"""


def test_lines_of_a_paragraph_are_one() -> None:
    shown = flowing(f"Chapter 1\n{PARAGRAPH}\n\nHe left.\n{PARAGRAPH}")
    first = PARAGRAPH.replace("\n", " ", 1)  # a sentence ends with the second line
    assert shown.split("\n")[:2] == ["Chapter 1", first.split("\n")[0]]
    assert "eldest of his children, 2 of them" in shown
    assert "\n\nHe left.\n" in shown


@pytest.mark.parametrize("text", [TABLE, LIST, "", "\n\n", "One line", "A\nB\nC", "12 of June\n13 of June\n14 of June"])
def test_what_is_no_paragraph_stays(text: str) -> None:
    assert flowing(text) == text


def test_letters_without_cases_flow_too() -> None:
    line = "نام استاندارد شمشه و شمشال توليد شده به روش ريخته گری"
    assert flowing(f"{line}\n{line}") == f"{line} {line}"


@given(st.text(alphabet="ab C.,-12\n\t  é", max_size=400))
def test_every_character_keeps_its_place(text: str) -> None:
    shown = flowing(text)
    assert len(shown) == len(text)
    assert all(new == old or (old == "\n" and new in (" ", GONE)) or (old == "-" and new == GONE)
               for old, new in zip(text, shown, strict=True))  # fmt: skip


def test_a_word_that_the_end_of_a_line_has_broken_is_whole_where_it_stands_so_elsewhere() -> None:
    page = """The keeper found the retrieval of the book diffi-
cult in winter, and in summer it was a two-
fold work to go on with it, for every new retri-
eval of a book asked for a lamp and a ladder"""
    shown = without_gone(flowing(page))
    assert "every new retrieval of a book" in shown
    assert "diffi-cult" in shown, "nowhere in one piece: the hyphen may be the word's own"
    assert "two-fold" in shown


MARKDOWN = """# The *old* station ##

Two **white _and_ red** flashes; 2 * 3 * 4, snake_case_name and __all__ of it.

```
# a comment ** of code
```
**9 October.** Calm.
"""


def test_markdown_is_shown_without_its_marks() -> None:
    shown = unmarked(MARKDOWN)
    assert len(shown) == len(MARKDOWN)
    lines = without_gone(shown).split("\n")
    assert lines[0] == "The old station"
    assert lines[2] == "Two white and red flashes; 2 * 3 * 4, snake_case_name and all of it."
    assert lines[5] == "# a comment ** of code"
    assert lines[7] == "9 October. Calm."


@given(st.text(alphabet="ab *_#`\n~", max_size=200))
def test_of_markdown_every_character_keeps_its_place(text: str) -> None:
    shown = unmarked(text)
    assert all(new == old or (new == GONE and old in "#*_ ") for old, new in zip(text, shown, strict=True))


@pytest.mark.timeout(20)
@pytest.mark.parametrize("piece", ["**a b ", "__a b ", "*a b ", " #", "```\n", "a \t"])
def test_marks_that_nothing_closes_take_no_time(piece: str) -> None:
    text = piece * 200_000
    assert len(unmarked(text)) == len(text)


def test_strong_words_of_more_than_a_paragraph_keep_their_marks() -> None:
    assert without_gone(unmarked(f"**{'a' * 400}**")) == "a" * 400
    assert unmarked(f"**{'a' * 402}**") == f"**{'a' * 402}**"
