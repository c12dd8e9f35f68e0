"""Tables as lines of cells, for Word and HTML: a cell that spans rows or columns is told again in each of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_MOST_COLUMNS = 100  # of a row
_MOST_TOLD_AGAIN = 100  # characters of a cell; a longer one stands once


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell. It spans `rows` and `columns`; `is_above` says that it goes on with the cell above it."""

    text: str
    columns: int = 1
    rows: int = 1
    is_above: bool = False


def table_lines(rows: Iterable[list[Cell]]) -> Iterator[str]:
    """A line for every row with text, its cells parted by bars."""
    held: dict[int, tuple[str, int]] = {}  # what comes down from above, by column, and for how many rows
    above: list[str] = []
    for row in rows:
        line: list[str] = []
        for cell in row:
            _come_down(line, held)
            text = above[len(line)] if cell.is_above and len(line) < len(above) else cell.text
            again = " ".join(text.split()) if len(text) <= _MOST_TOLD_AGAIN else ""  # without the end of a page in it
            for place in range(min(cell.columns, _MOST_COLUMNS - len(line))):
                if cell.rows > 1:
                    held[len(line)] = again, cell.rows - 1
                line.append(again if place else text)
        _come_down(line, held)
        above = line
        if len(row) == 1 and row[0].columns == len(line):
            line = line[:1]  # a title above all columns
        if row and any(line):
            yield " | ".join(line)


def _come_down(line: list[str], held: dict[int, tuple[str, int]]) -> None:
    while len(line) in held:
        text, rows = held.pop(len(line))
        if rows > 1:
            held[len(line)] = text, rows - 1
        line.append(text)


def inner_table(lines: Iterable[str]) -> str:
    """A table in a cell of another: "pump: 2; valve: 5"."""
    return "; ".join(line.replace(" | ", ": ") for line in lines)
