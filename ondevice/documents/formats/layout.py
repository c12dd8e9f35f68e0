"""Tables and lists as lines: cells that span rows or columns are told in each, numbers as printed."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count

_MOST_SPAN = 100  # columns that one cell may stand in
_MOST_COLUMNS = 100  # of a row
_MOST_TOLD_AGAIN = 100  # characters of a cell; a longer one stands once
_ANY = sys.maxsize
_BEFORE, _BEHIND = re.compile(r"[$€£¥(\s]{1,4}"), re.compile(r"[)%\s]{1,4}")  # a number, in cells of their own
_NUMBER, _NUMBER_END = re.compile(r"[(+−–—-]*\s*(?:[.\d]|\Z)"), re.compile(r"[\d)—–-]\Z")  # noqa: RUF001
LETTERED = {"a": "lowerLetter", "A": "upperLetter", "i": "lowerRoman", "I": "upperRoman"}  # as HTML and ODF say it
_ROMAN = {
    1000: "m", 900: "cm", 500: "d", 400: "cd", 100: "c", 90: "xc", 50: "l", 40: "xl", 10: "x", 9: "ix", 5: "v",
    4: "iv", 1: "i",
}  # fmt: skip

Held = dict[int, tuple[str, int]]  # what comes down from above, by column, and for how many rows


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell. It spans `rows` and `columns`; `is_above` says that it goes on with the cell above it."""

    text: str
    columns: int = 1
    rows: int = 1
    is_above: bool = False


def table_lines(rows: Iterable[list[Cell]]) -> Iterator[str]:
    """A line for every row with text, its cells parted by bars; without the columns that only set others apart."""
    held: Held = {}
    held_numbers: Held = {}
    above: list[str] = []
    above_numbers: list[str] = []
    number = count()  # of a cell, which tells one that is told again from another with the same text
    lines, numbers, titles = list[list[str]](), list[list[str]](), list[bool]()
    for row in rows:
        above = spread(row, held, above, most_columns=_MOST_COLUMNS, most_again=_MOST_TOLD_AGAIN)
        numbered = (replace(cell, text=str(next(number))) for cell in row)
        above_numbers = spread(numbered, held_numbers, above_numbers, most_columns=_MOST_COLUMNS)
        if row:
            lines.append([text.strip() for text in above])
            numbers.append(above_numbers)
            titles.append(len(row) == 1 and row[0].columns == len(above))  # above all columns
            _join_marks(lines[-1], above_numbers)
    kept = _columns_of_text(lines, numbers)
    for line, is_title in zip(lines, titles, strict=True):
        if any(line):
            yield line[0] if is_title else " | ".join(line[at] for at in kept if at < len(line))


def _join_marks(line: list[str], numbers: list[str]) -> None:
    """Put a currency or a bracket that has a cell of its own beside its number: "$" and "(5" and ")" are "$(5)"."""
    for at, text in enumerate(line):
        if not text:
            continue
        to, joined = at, ""
        if at + 1 < len(line) and line[at + 1] and _BEFORE.fullmatch(text) and _NUMBER.match(line[at + 1]):
            to, joined = at + 1, text + line[at + 1]
        elif at and _BEHIND.fullmatch(text) and _NUMBER_END.search(line[at - 1]):
            to, joined = at - 1, line[at - 1] + text
        if joined:
            line[at] = ""
            for step in (1, -1):  # in all columns that the number spans
                place = to
                while 0 <= place < len(line) and numbers[place] == numbers[to]:
                    line[place], place = joined, place + step


def _columns_of_text(lines: list[list[str]], numbers: list[list[str]]) -> list[int]:
    """The columns without those that have no cell of their own with text, as long as two are left.

    A long text of several columns stands in the first one; it goes over to the one that is left.
    """
    width = max(map(len, lines), default=0)
    if width > _MOST_COLUMNS:
        return [*range(width)]
    kept, num_left = list[int](), width
    for at in reversed(range(width)):
        beside = [at - 1][: min(at, 1)] + kept[-1:]
        other = next((one for one in beside if num_left > 2 and _is_within(at, one, lines, numbers)), -1)
        if other < 0:
            kept.append(at)
            continue
        num_left -= 1
        for line in (line for line in lines if at < len(line) and line[at]):
            line[other] = line[at]
    return kept[::-1]


def _is_within(at: int, other: int, lines: list[list[str]], numbers: list[list[str]]) -> bool:
    """True if a column has no text but that of cells which another column has, too."""
    return all(
        at >= len(line) or not line[at] or (other < len(line) and same[at] == same[other])
        for line, same in zip(lines, numbers, strict=True)
    )


def spread(
    row: Iterable[Cell], held: Held, above: Sequence[str] = (), *, most_columns: int = _ANY, most_again: int = _ANY
) -> list[str]:
    """Texts of a row, column by column: one that spans rows or columns stands in each of them.

    Args:
        row: its cells, without those that another one covers.
        held: what comes down into the next row. Changed.
        above: the row above, for cells that go on with it.
        most_columns: of a row that one cell may fill; behind them each stands once.
        most_again: characters of a text that stands more than once; a longer one stands once.
    """
    line: list[str] = []
    for cell in row:
        _come_down(line, held)
        text = above[len(line)] if cell.is_above and len(line) < len(above) else cell.text
        again = " ".join(text.split()) if len(text) <= most_again else ""  # without the end of a page in it
        for place in range(max(min(cell.columns, _MOST_SPAN, most_columns - len(line)), 1)):
            if cell.rows > 1:
                held[len(line)] = again, cell.rows - 1
            line.append(again if place else text)
    _come_down(line, held)
    return line


def _come_down(line: list[str], held: Held) -> None:
    while len(line) in held:
        text, rows = held.pop(len(line))
        if rows > 1:
            held[len(line)] = text, rows - 1
        line.append(text)


def ordinal(number: int, style: str) -> str:
    """The number in one of Word's styles: `lowerLetter`, `upperLetter`, `lowerRoman`, `upperRoman`, `decimalZero`.

    A number in any other style, and one that the style does not know, is decimal.
    """
    if style == "decimalZero":
        return f"{number:02}"
    text = ""
    if style.endswith("Letter") and 0 < number <= 780:
        text = chr(ord("a") + (number - 1) % 26) * ((number - 1) // 26 + 1)  # z, aa, bb, as Word counts
    elif style.endswith("Roman") and 0 < number < 4000:
        for value, letters in _ROMAN.items():
            text += letters * (number // value)
            number %= value
    return (text.upper() if style.startswith("upper") else text) or str(number)
