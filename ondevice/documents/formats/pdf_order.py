"""Rows of tables on a PDF page, and the names above them, that are drawn after what stands below."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from itertools import accumulate, pairwise

from ondevice.documents.formats.pdf_columns import is_figure
from ondevice.documents.formats.pdf_lines import Line, levels, merged

_BACK = 6.0  # of the size: lines drawn as far above the one before begin another piece of the page
LONGEST_STEP = 5.0  # of the size: rows further apart are not of one table
_NEXT_LINE = 2.2  # of the size: names further above a table are not of it
_BEYOND = 3.0  # of the size, at most: from the ends of the figures of a table to that of a name
_MOST_TABLES = 20  # on a page
_YEAR = re.compile(r"(?:19|20)\d\d")


def in_place(lines: list[Line]) -> list[Line]:
    """The lines, those of a table that are in another piece of the page than most of its rows among these."""
    back = [False, *(line.base - above.base > _BACK * line.size for above, line in pairwise(lines))]
    if not any(back):
        return lines
    pieces = {id(line): piece for line, piece in zip(lines, accumulate(back), strict=True)}
    for rows in _tables(lines):
        home = Counter(pieces[id(line)] for line in rows).most_common(1)[0][0]
        within = {id(line) for line in _within(rows, lines)}
        moved = {one for one in within if pieces[one] != home}
        there = [line for line in lines if id(line) in within - moved]
        if not there:
            continue
        away = [line for line in lines if id(line) in moved]
        places: dict[int, list[Line]] = {}
        for row in levels(away):
            line = merged(sorted(row, key=lambda line: line.left))
            line.is_over = line.base > rows[0].base
            below = next((id(one) for one in there if one.base < line.base), 0)
            places.setdefault(below, []).append(line)
        last = places.pop(0, [])
        lines = [
            one
            for line in lines
            if id(line) not in moved
            for one in (*places.get(id(line), ()), line, *(last if line is there[-1] else ()))
        ]
    return lines


def _tables(lines: list[Line]) -> list[list[Line]]:
    """Rows with several figures each, from the top, of each table."""
    tables: list[list[Line]] = []
    for row in sorted(lines, key=lambda line: -line.base):
        if len(row.cells) > 2 and _num_figures(row) > 1:
            last = next((table for table in tables[-4:] if _goes_on(table[-1], row)), None)
            if last is None:
                tables.append([row])
            else:
                last.append(row)
    return [table for table in tables if len(table) > 1][:_MOST_TABLES]


def _goes_on(above: Line, row: Line) -> bool:
    shared = min(above.right, row.right) - max(above.left, row.left)
    is_near = above.turn == row.turn and 0 < above.base - row.base < LONGEST_STEP * row.size
    return is_near and 2 * shared > max(above.right - above.left, row.right - row.left)


def _within(rows: list[Line], lines: list[Line]) -> Iterator[Line]:
    """The lines between the first and the last of some rows, and above them those that may name their columns."""
    left, right = min(row.left for row in rows), max(row.right for row in rows)
    top, beyond = rows[0].base, _BEYOND * rows[0].size
    for line in sorted(lines, key=lambda line: line.base):
        is_in = line.turn == rows[0].turn and left - beyond < line.left and line.right < right + beyond
        if is_in and rows[-1].base <= line.base <= rows[0].base:
            yield line
        elif is_in and 0 <= line.base - top < _NEXT_LINE * line.size and _names(line, (right - left) / 2):
            top = max(line.base, top)
            yield line


def _names(line: Line, widest: float) -> bool:
    """True for names of columns; for one alone that is no wider than this."""
    return not _num_figures(line) and (len(line.cells) > 1 or line.right - line.left < widest)


def _num_figures(line: Line) -> int:
    """The number of cells with figures other than years, which may be names."""
    return sum(is_figure(text) and not _YEAR.fullmatch(text) for text, _, _ in line.cells)
