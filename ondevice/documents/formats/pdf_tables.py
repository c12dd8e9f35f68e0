"""Lines of a PDF page put into blocks: the rows of tables, columns of text, and lines by themselves."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby, pairwise, takewhile

from ondevice.documents.formats.layout import Cell as Spanning
from ondevice.documents.formats.layout import Held, spread, table_lines
from ondevice.documents.formats.pdf_columns import (
    APART,
    MOST_COLUMNS,
    Columns,
    column_at,
    columns_of,
    is_figure,
    is_prose,
    is_stretched,
    joined,
    over,
    parts_of,
)
from ondevice.documents.formats.pdf_lines import Cell, Line, levels, merged
from ondevice.documents.formats.pdf_order import LONGEST_STEP, in_place

_OTHER_TABLE = 1.9  # of the longest step between the rows so far
_NEXT_LINE = 2.2  # of the size: a lone line further below belongs to no column of text
_HALF = 1.1  # of the size: lines as near as this, in other columns, are cells of one row that are set in its middle
_SAME_MIDDLE = 0.3  # of the size: cells whose middles are as near are set in the middle of one row
_GAP = 0.3  # of the size, at least, between two columns
_MOST_ROWS = 200  # of one table
_NEXT_STEP = 1.6  # of the size: lines further apart are not of one cell
_MOST_CELL_LINES = 6  # more are a column of text
_BESIDE_ROW = 0.9  # of the size: what is further below all of a row is not of it
_FEWEST_WORDS, _FEWEST_LINES, _MOST_IN_COLUMNS = 5, 8, 0.8  # of text: words of a line, lines of a column, share in both
_MOST_CELL_WORDS, _FEWEST_FIGURES = 4, 0.2  # of a table's cells, on average: words, and cells of figures alone


@dataclass(slots=True)
class Block:
    """Lines that belong together: rows of a table or of columns of text (`columns` are their ends), or plain ones.

    `ruled` are the rows of a table whose cells are known.
    """

    lines: list[Line]
    columns: Columns = field(default_factory=list)
    is_prose: bool = True
    ruled: list[list[Spanning]] = field(default_factory=list)

    def rows(self) -> list[list[str]]:
        """The cells of each line, one a column, as they are read."""
        if self.ruled:
            held: Held = {}
            return [spread(row, held) for row in self.ruled]
        rows: list[list[str]] = []
        for lines in [[line] for line in self.lines] if self.is_prose else self._near():
            rows += self._one_row(lines)
        is_from_right = 2 * sum(line.is_from_right for line in self.lines) > len(self.lines)
        return [row[::-1] for row in rows] if is_from_right else rows

    def _near(self) -> Iterator[list[Line]]:
        """Lines that are too near for two of one text."""
        near = self.lines[:1]
        for line in self.lines[1:]:
            if not _is_half_below(near[-1], line):
                yield near
                near = []
            near.append(line)
        yield near

    def _one_row(self, lines: list[Line]) -> list[list[str]]:
        """The cells of one row, all set in its middle, as one; but rows around a label stay as they are."""
        rows, bases = [], [list[float]() for _ in self.columns]
        for line in lines:
            rows.append([""] * len(self.columns))
            for text, left, right in line.cells:
                at = column_at(self.columns, left, right)
                rows[-1][at] = f"{rows[-1][at]} {text}".strip()
            for filled in (at for at, text in enumerate(rows[-1]) if text):
                bases[filled].append(line.base)
        columns = [[text for text in column if text] for column in zip(*rows, strict=True)]
        several = [column for column in columns if len(column) > 1]
        middles = [sum(column) / len(column) for column in bases if column]
        in_middle = len(lines) == 2 or max(middles) - min(middles) < _SAME_MIDDLE * lines[0].size
        are_texts = any(any(map(all, zip(*pair, strict=True))) for pair in pairwise(rows))
        are_figures = any(all(map(is_figure, column)) for column in several)
        labels = (row for row in rows if sum(map(bool, row)) == 1 and not any(max(row) in column for column in several))
        if not in_middle or are_texts or are_figures or (len(several) > 1 and any(labels)):
            return rows
        return [[" ".join(column) for column in columns]]

    def texts(self) -> list[str]:
        if not self.columns:
            return [line.text for line in self.lines]
        if self.ruled:
            return [*table_lines(self.ruled)]
        rows = self.rows()
        if self.is_prose:
            return [cell for column in zip(*rows, strict=True) for cell in column if cell]
        return [" | ".join(row).rstrip() for row in rows]


def by_rows(lines: list[Line]) -> list[Line]:
    """The lines, with the rows of a table put together whose cells were not drawn row by row."""
    rows = levels(lines)
    shared = [row for row in rows if len(row) > 1]
    cells = [text for row in shared for line in row for text, _, _ in line.cells]
    num_figures = sum(map(is_figure, cells))
    num_words = sum(len(cell.split()) for cell in cells)
    is_table = num_words < _MOST_CELL_WORDS * len(cells) and num_figures > _FEWEST_FIGURES * len(cells)
    if len(shared) < 3 or not is_table:
        return lines
    if gutter := _gutter(lines):
        parts = groupby(lines, lambda line: (line.right <= gutter) - (line.left >= gutter))
        return [line for _, part in parts for line in by_rows([*part])]
    return [merged(row) for row in rows]


def _gutter(lines: list[Line]) -> float:
    """The left end of a column of text to the right of another one; 0 if the page has one column of text."""
    texts = [line for line in lines if len(line.cells) == 1 and len(line.words) >= _FEWEST_WORDS]
    lefts, rights = sorted(line.left for line in texts), sorted(line.right for line in texts)
    for right in dict.fromkeys(lefts):
        before, after = bisect_right(rights, right), len(lefts) - bisect_left(lefts, right)
        if min(before, after) >= _FEWEST_LINES and before + after > _MOST_IN_COLUMNS * len(texts):
            return right
    return 0.0


def blocks_of(lines: list[Line]) -> Iterator[Block]:
    lines, start = _as_rows(_labelled(in_place(lines))), 0
    while start < len(lines):
        rows = _rows(lines, start) if len(lines[start].cells) > 1 or _is_apart(lines[start]) else []
        block = _in_columns(rows) or Block(lines[start : start + 1])
        yield block
        start += len(block.lines)


def _as_rows(lines: list[Line]) -> list[Line]:
    """The lines, with those that are cells of one table row, drawn one after the other, put on one line.

    Columns of text are drawn so, too: a row is one of a table where a neighbour has cells in the same columns.
    """
    rows: list[list[Line]] = []
    for line in lines:
        if rows and _belongs(rows[-1], line):
            rows[-1].append(line)
        else:
            rows.append([line])
    cells = [_stacked(row) for row in rows]
    alike = [_are_alike(*pair) for pair in pairwise(cells)]
    kept: list[Line] = []
    for at, row in enumerate(rows):
        is_row = any(alike[max(at - 1, 0) : at + 1]) and 1 < max(map(len, cells[at])) <= _MOST_CELL_LINES
        # What is drawn from the top to the bottom of the page goes back to no cell; it may stand in the middle of rows.
        is_row = is_row and any(line.base > above.base + 0.3 * line.size for above, line in pairwise(row))
        kept += [_on_one_line(row, cells[at])] if is_row else row
    return kept


def _belongs(row: list[Line], line: Line) -> bool:
    """True if a line goes on with a cell of the one before, or begins a cell to the right of it beside the row."""
    last = row[-1]
    if line.turn != last.turn or len(row) > _MOST_ROWS:
        return False
    if line.left > last.right:
        bases = [one.base for one in row]
        return min(bases) - _BESIDE_ROW * line.size < line.base < max(bases) + _MOST_CELL_LINES * line.size
    below = last.base - line.base
    _, left, right = last.cells[-1]  # cells are drawn one after the other
    _, first, end = line.cells[0]
    is_over = left < end and first < right and not any(first < cell[2] for cell in last.cells[:-1])
    if len(line.cells) > 1:  # names of columns end at one height
        is_middle = min(abs(first - left), abs(first + end - left - right) / 2) < line.size
        is_over = is_over and is_middle and abs(line.base - row[0].base) < 0.3 * line.size
    return is_over and 0.3 < below / line.size < _NEXT_STEP and not (len(line.cells) == 1 and _is_apart(line))


def _stacked(row: list[Line]) -> list[list[Cell]]:
    """The cells of a row, each with its lines; none where a line goes over several of them, as names of columns do."""
    stacks: list[list[Cell]] = []
    for line in row:
        taken: list[list[Cell]] = []
        for cell in line.cells:
            over = [one for one in stacks if any(a < cell[2] and cell[1] < b for _, a, b in one)]
            if len(over) > 1 or any(one is over[0] for one in taken if over):
                return []
            taken.append(over[0] if over else [])
            taken[-1].append(cell)
            stacks += [] if over else taken[-1:]
    return stacks


def _are_alike(stacks: list[list[Cell]], others: list[list[Cell]]) -> bool:
    """True if two rows have several cells each, and those of the one with fewer stand in columns of the other."""
    few, many = sorted((stacks, others), key=len)
    if len(few) < 2:
        return False
    wholes = [_one_cell(stack) for stack in many]
    hits = [{at for at, (_, a, b) in enumerate(wholes) if a < stack[0][2] and stack[0][1] < b} for stack in few]
    return all(hits) and len(set().union(*hits)) >= len(few)


def _one_cell(stack: list[Cell]) -> Cell:
    """The lines of a cell as one, over the width of all."""
    return (
        " ".join(text for text, _, _ in stack),
        min(left for _, left, _ in stack),
        max(right for _, _, right in stack),
    )


def _on_one_line(row: list[Line], stacks: list[list[Cell]]) -> Line:
    """The lines of a row as one; a cell of several lines counts as one word, as its words stand above each other."""
    bases, whole = [line.base for line in row], merged(row)
    tall = [_one_cell(stack) for stack in stacks if len(stack) > 1]
    words = [word for word in whole.words if not any(left <= word[1] and word[2] <= right for _, left, right in tall)]
    whole.base, whole.is_row = (max(bases) + min(bases)) / 2, True
    whole.cells = sorted(map(_one_cell, stacks), key=lambda cell: cell[1])
    whole.words = sorted([*words, *tall], key=lambda word: word[1])
    return whole


def _labelled(lines: list[Line]) -> list[Line]:
    """The lines, with a label that is drawn before the rows in whose middle it stands as the first cell of each."""
    kept: list[Line] = []
    for index, label in enumerate(lines):
        beside: list[Line] = []
        above = (len(row.cells) > 1 and abs(row.left - label.left) < label.size for row in kept[-2:])
        if len(label.cells) == 1 and any(above):
            beside = _beside(label, lines[index + 1 : index + 1 + _MOST_ROWS])
        for row in beside:
            row.cells, row.words, row.left = [*label.cells, *row.cells], [*label.words, *row.words], label.left
        kept += [] if beside else [label]
    return kept


def _beside(label: Line, after: list[Line]) -> list[Line]:
    """The rows to the right of a label, as many above its middle as below."""
    slack = 0.3 * label.size
    rows = [*takewhile(lambda row: len(row.cells) > 1 and row.left > label.right and row.turn == label.turn, after)]
    last = 2 * label.base - (rows[0].base if rows else 0.0)
    rows = [row for row in rows if row.base > last - slack]
    is_middle = len(rows) > 1 and rows[0].base > label.base + slack and abs(rows[-1].base - last) < slack
    return rows if is_middle else []


def _is_apart(line: Line) -> bool:
    """True if all words of a line are so far apart that they may be names of columns."""
    gaps = [after[1] - before[2] for before, after in pairwise(line.words)]
    return len(gaps) > 1 and min(gaps) > APART * line.size


def _rows(lines: list[Line], start: int) -> list[Line]:
    """Lines from this one on that leave the same gap free, each below the one before."""
    rows, gaps, longest = [lines[start]], _gaps(lines[start]), 0.0
    for line in lines[start + 1 : start + _MOST_ROWS]:
        above, step = rows[-1], rows[-1].base - line.base
        is_next = above.turn == line.turn and 0 < step < LONGEST_STEP * max(above.size, line.size)
        is_below = line.is_over and any(is_figure(text) for text, _, _ in above.cells)
        is_other = (is_below and not above.is_over) or (len(rows) > 3 and step > _OTHER_TABLE * longest)
        if not is_next or is_other:
            break
        free = [(max(a, c), min(b, d)) for a, b in gaps for c, d in _gaps(line)]
        gaps = [(left, right) for left, right in free if right - left > _GAP * line.size][:MOST_COLUMNS]
        if not gaps:
            break
        rows.append(line)
        longest = max(step, longest)
    return rows


def _gaps(line: Line) -> list[tuple[float, float]]:
    """Free places between the cells of a line; a line of one cell is free on both sides."""
    if len(line.cells) == 1:
        return [(-math.inf, line.left), (line.right, math.inf)]
    return [(before[2], after[1]) for before, after in pairwise(line.cells[:MOST_COLUMNS])]


def _in_columns(rows: list[Line]) -> Block | None:
    """The rows as a block in columns; None if they are no more than lines with wide gaps."""
    full = [line for line in rows if len(line.cells) > 1 and not line.is_over]
    if len(full) < 2 or is_stretched(full):
        return None
    columns = columns_of(full)
    is_text = is_prose(rows, columns) and not any(line.is_row for line in rows)
    if not is_text:
        for line in rows:
            is_head = line is rows[0] or line.is_over or len(line.cells) < 2
            line.cells = [part for cell in line.cells for part in parts_of(line, cell, columns, is_head=is_head)]
        columns = joined(columns, full)
        for line in (line for line in rows if line.is_over):
            line.cells = [*over(line, columns)]
    if len(rows[0].cells) < 2:
        return None
    while len(rows[-1].cells) < 2 and (
        rows[-2].base - rows[-1].base > _NEXT_LINE * rows[-1].size if is_text else not _is_half_below(*rows[-2:])
    ):
        rows = rows[:-1]
    return Block(rows, columns, is_text) if len(columns) > 1 else None


def _is_half_below(above: Line, line: Line) -> bool:
    """True if lines are too near for two of one text."""
    return above.base - line.base < _HALF * line.size


def is_alike(columns: Columns, block: Block) -> bool:
    pairs = zip(columns, block.columns, strict=False)
    return len(columns) == len(block.columns) and all(a[0] < b[1] and b[0] < a[1] for a, b in pairs)


def head_of(rows: list[list[str]]) -> list[list[str]]:
    """The first rows, at most three, if they are without figures and most of the others have some.

    A row of one cell after the first is no part of it: it names the rows that follow.
    """
    figures = [any(any(map(str.isdigit, cell)) for cell in row) for row in rows]
    is_head = (not has_some and (not at or sum(map(bool, rows[at])) > 1) for at, has_some in enumerate(figures[:3]))
    depth = sum(1 for _ in takewhile(bool, is_head))
    return rows[:depth] if 2 * sum(figures) > len(rows) - depth else []
