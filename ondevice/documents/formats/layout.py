"""Tables and lists as lines: cells that span rows or columns are told in each, numbers as printed."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

_MOST_SPAN = 100  # columns that one cell may stand in
_MOST_COLUMNS = 100  # of a row
_MOST_TOLD_AGAIN = 100  # characters of a cell; a longer one stands once
_ANY = sys.maxsize
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
    """A line for every row with text, its cells parted by bars."""
    held: Held = {}
    above: list[str] = []
    for row in rows:
        above = line = spread(row, held, above, most_columns=_MOST_COLUMNS, most_again=_MOST_TOLD_AGAIN)
        if len(row) == 1 and row[0].columns == len(line):
            line = line[:1]  # a title above all columns
        if row and any(line):
            yield " | ".join(line)


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
