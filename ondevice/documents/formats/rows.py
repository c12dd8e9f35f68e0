"""Tables as rows of text (CSV, TSV, the sheets of a workbook): each part begins with the names of the columns."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import chain, islice

from ondevice.documents.formats.plain import lines, read_lines
from ondevice.documents.formats.reader import Reader, Request
from ondevice.documents.formats.sections import Block, join_sections
from ondevice.documents.formats.split import PART_CHARS

BETWEEN = " | "  # cells of a row
_EMPTY = re.compile(r"(?: \| ){20,}")
_DELIMITERS = ",;\t|"
_RECORD_CHARS = 65_536  # of one with line ends inside quotes
_HEAD_SHARE = 4  # a part is this many times as long as its head, or longer
_FIRST_ROWS = 10  # in which the head is looked for: a title may stand before it


def open_rows(request: Request) -> Reader:
    """A table in parts, as it is written."""
    return read_lines(request, "csv", "part", lambda chunks: table_parts(_records(lines(chunks))))


def table_parts(rows: Iterable[str], between: str = "") -> Iterator[str]:
    """Parts of a table whose rows have their line ends; later ones begin with its head again, a row of names.

    What stands `between` cells is guessed where it is not given.
    """
    rows = iter(rows)
    first = list(islice(rows, _FIRST_ROWS))
    head = next((row for row in first if are_names(row.split(between or max(_DELIMITERS, key=row.count)))), "")
    size = max(PART_CHARS, _HEAD_SHARE * len(head))
    for index, part in enumerate(join_sections((Block(row) for row in chain(first, rows)), size)):
        yield head + part if index else part


def are_names(cells: Iterable[str]) -> bool:
    """True if cells can be the names of two or more columns: none is empty or holds a number."""
    cells = [cell.strip().strip('"') for cell in cells]
    return len(cells) > 1 and all(cell and not any(map(str.isdigit, cell[:1])) for cell in cells)


def as_row(cells: Iterable[str]) -> str:
    """A line of the text, "" where all cells are empty."""
    row = BETWEEN.join(" ".join(cell.split()) for cell in cells).rstrip(BETWEEN)
    return row and _EMPTY.sub(" | ... | ", row) + "\n"


def _records(written: Iterable[str]) -> Iterator[str]:
    """Rows, with the line ends that stand in quotes."""
    held = ""
    for line in written:
        held += line
        if held.count('"') % 2 == 0 or len(held) > _RECORD_CHARS:
            yield held
            held = ""
    if held:
        yield held
