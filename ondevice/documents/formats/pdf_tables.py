"""Lines of a PDF page put into blocks: the rows of tables, columns of text, and lines by themselves."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise, takewhile

from ondevice.documents.formats.pdf_lines import Cell, Line

_LONGEST_STEP = 5.0  # of the size: rows further apart are not of one table
_OTHER_TABLE = 1.9  # of the longest step between the rows so far
_NEXT_LINE = 2.2  # of the size: a lone line further below belongs to no column of text
_GAP = 0.3  # of the size, at least, between two columns
_APART = 0.5  # of the size: words further apart than this may be cells of two columns
_MOST_ROWS, _MOST_COLUMNS = 200, 60  # of one table
_MOST_PROSE, _MOST_LOWER = 4, 0.6  # columns of text; of the cells of a table: those that begin with a small letter
_MOST_CELL_WORDS, _FEWEST_FIGURES = 4, 0.2  # of a table's cells, on average: words, and cells of figures alone

Columns = list[tuple[float, float]]


@dataclass(slots=True)
class Block:
    """Lines that belong together: rows of a table or of columns of text (`columns` are their ends), or plain ones."""

    lines: list[Line]
    columns: Columns = field(default_factory=list)
    is_prose: bool = True

    def rows(self) -> list[list[str]]:
        """The cells of each line, one a column, as they are read."""
        rows = []
        for line in self.lines:
            row = [""] * len(self.columns)
            for text, left, right in line.cells:
                at = _column(self.columns, left, right)
                row[at] = f"{row[at]} {text}".strip()
            rows.append(row)
        is_from_right = 2 * sum(line.is_from_right for line in self.lines) > len(self.lines)
        return [row[::-1] for row in rows] if is_from_right else rows

    def texts(self) -> list[str]:
        if not self.columns:
            return [line.text for line in self.lines]
        rows = self.rows()
        if self.is_prose:
            return [cell for column in zip(*rows, strict=True) for cell in column if cell]
        return [" | ".join(row).rstrip() for row in rows]


def by_rows(lines: list[Line]) -> list[Line]:
    """The lines, with the rows of a table put together whose cells were not drawn row by row."""
    rows: list[list[Line]] = []
    for line in sorted(lines, key=lambda line: (line.turn, -line.base)):
        last = rows[-1][-1] if rows else None
        if last and last.turn == line.turn and last.base - line.base < 0.3 * line.size:
            rows[-1].append(line)
        else:
            rows.append([line])
    shared = [row for row in rows if len(row) > 1]
    cells = [text for row in shared for line in row for text, _, _ in line.cells]
    num_figures = sum(map(_is_figure, cells))
    num_words = sum(len(cell.split()) for cell in cells)
    is_table = num_words < _MOST_CELL_WORDS * len(cells) and num_figures > _FEWEST_FIGURES * len(cells)
    return [_merged(row) for row in rows] if len(shared) > 2 and is_table else lines


def _merged(row: list[Line]) -> Line:
    for line in row[1:]:
        for run in line.runs:
            row[0].take(run)
    row[0].cells = sorted((cell for line in row for cell in line.cells), key=lambda cell: cell[1])
    row[0].words = sorted((word for line in row for word in line.words), key=lambda word: word[1])
    return row[0]


def blocks_of(lines: list[Line]) -> Iterator[Block]:
    lines, start = _labelled(lines), 0
    while start < len(lines):
        rows = _rows(lines, start) if len(lines[start].cells) > 1 or _is_apart(lines[start]) else []
        block = _in_columns(rows) or Block(lines[start : start + 1])
        yield block
        start += len(block.lines)


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
    return len(gaps) > 1 and min(gaps) > _APART * line.size


def _rows(lines: list[Line], start: int) -> list[Line]:
    """Lines from this one on that leave the same gap free, each below the one before."""
    rows, gaps, longest = [lines[start]], _gaps(lines[start]), 0.0
    for line in lines[start + 1 : start + _MOST_ROWS]:
        above, step = rows[-1], rows[-1].base - line.base
        is_next = above.turn == line.turn and 0 < step < _LONGEST_STEP * max(above.size, line.size)
        if not is_next or (len(rows) > 3 and step > _OTHER_TABLE * longest):
            break
        free = [(max(a, c), min(b, d)) for a, b in gaps for c, d in _gaps(line)]
        gaps = [(left, right) for left, right in free if right - left > _GAP * line.size][:_MOST_COLUMNS]
        if not gaps:
            break
        rows.append(line)
        longest = max(step, longest)
    return rows


def _gaps(line: Line) -> list[tuple[float, float]]:
    """Free places between the cells of a line; a line of one cell is free on both sides."""
    if len(line.cells) == 1:
        return [(-math.inf, line.left), (line.right, math.inf)]
    return [(before[2], after[1]) for before, after in pairwise(line.cells[:_MOST_COLUMNS])]


def _in_columns(rows: list[Line]) -> Block | None:
    """The rows as a block in columns; None if they are no more than lines with wide gaps."""
    full = [line for line in rows if len(line.cells) > 1]
    if len(full) < 2 or _is_stretched(full):
        return None
    columns = _columns(full)
    is_prose = _is_prose(rows, columns)
    if not is_prose:
        for line in rows:
            is_head = line is rows[0] or len(line.cells) < 2
            line.cells = [part for cell in line.cells for part in _parts(line, cell, columns, is_head=is_head)]
        columns = _joined(columns, full)
    if len(rows[0].cells) < 2:
        return None
    while len(rows[-1].cells) < 2 and (not is_prose or rows[-2].base - rows[-1].base > _NEXT_LINE * rows[-1].size):
        rows = rows[:-1]
    return Block(rows, columns, is_prose) if len(columns) > 1 else None


def _columns(lines: list[Line]) -> Columns:
    """Left and right ends of columns: of the rows with most cells, and of others where these bridge none of them."""
    most = max(len(line.cells) for line in lines)
    columns: Columns = []
    for line in sorted(lines, key=lambda line: len(line.cells) < most):
        for _, left, right in line.cells:
            touched = [i for i, (begin, end) in enumerate(columns) if left < end and right > begin]
            if len(touched) == 1:
                begin, end = columns[touched[0]]
                columns[touched[0]] = (min(left, begin), max(right, end))
            elif not touched or len(line.cells) == most:
                merged = [columns[i] for i in touched]
                columns = [column for column in columns if column not in merged]
                columns.append((min([left, *(c[0] for c in merged)]), max([right, *(c[1] for c in merged)])))
                columns.sort()
    return columns


def _parts(line: Line, cell: Cell, columns: Columns, *, is_head: bool) -> Iterator[Cell]:
    """A cell, cut where its words go on in another column: in a wide gap, or before the figure at its end."""
    words = [word for word in line.words if cell[1] <= word[1] and word[2] <= cell[2]]
    at: list[int] = []
    for _, left, right in words:
        column = _column(columns, left, right)
        at.append(at[-1] if at and not left < columns[column][1] > columns[column][0] < right else column)
    wide = (at[i] != at[i - 1] and words[i][1] - words[i - 1][2] > _APART * line.size for i in range(1, len(words)))
    cuts = [number for number, is_wide in enumerate(wide, 1) if is_wide]
    if not is_head and len(words) - 1 not in cuts and len({*at[:1], *at[-1:]}) > 1 and _is_figure(words[-1][0]):
        cuts.append(len(words) - 1)
    if line.is_from_right or not cuts:
        yield cell
        return
    for start, stop in pairwise([0, *cuts, len(words)]):
        part = words[start:stop]
        yield " ".join(text for text, _, _ in part), part[0][1], part[-1][2]


def _is_figure(text: str) -> bool:
    return any(map(str.isdigit, text)) and not any(map(str.isalpha, text))


def _joined(columns: Columns, lines: list[Line]) -> Columns:
    """The columns, one that only the first row fills joined with one beside it that this row leaves free."""
    filled = [{_column(columns, left, right) for _, left, right in line.cells} for line in lines]
    alone = filled[0].difference(*filled[1:])
    joined: Columns = []
    may_join = False
    for at, column in enumerate(columns):
        may_join = may_join and ((at in alone and at - 1 not in filled[0]) or (at - 1 in alone and at not in filled[0]))
        if may_join:
            joined[-1] = (joined[-1][0], column[1])
        else:
            joined.append(column)
        may_join = not may_join
    return joined


def _column(columns: Columns, left: float, right: float) -> int:
    """The column that a cell overlaps most, or is nearest to."""
    overlaps = [min(right, end) - max(left, begin) for begin, end in columns]
    return overlaps.index(max(overlaps))


def _is_prose(lines: list[Line], columns: Columns) -> bool:
    """True if the columns hold sentences that go on from line to line, not the cells of a table."""
    if not 1 < len(columns) <= _MOST_PROSE:
        return False
    by_column: list[list[str]] = [[] for _ in columns]
    for line in lines:
        for text, left, right in line.cells:
            by_column[_column(columns, left, right)].append(text)
    words = [sum(len(text.split()) for text in texts) / max(len(texts), 1) for texts in by_column]
    firsts = [text[0] for texts in by_column for text in texts[1:] if text[0].isalpha()]
    later = sum(len(texts) - 1 for texts in by_column if texts)
    return min(words) >= 3 and sum(map(str.islower, firsts)) >= 0.3 * max(later, 1)


def _is_stretched(lines: list[Line]) -> bool:
    """True if the cells are the words of sentences, set wide apart so that their lines are full."""
    cells = [text for line in lines for text, _, _ in line.cells]
    num_lower = sum(text[:1].islower() for text in cells)
    return len(cells) > _MOST_PROSE * len(lines) and num_lower > _MOST_LOWER * len(cells)


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
