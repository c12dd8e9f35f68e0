"""Columns of the rows of a PDF page: where they begin and end, which of them a cell is in, whether they are prose."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from ondevice.documents.formats.pdf_lines import Cell, Line

APART = 0.5  # of the size: words further apart than this may be cells of two columns
_MOST_PROSE, _MOST_LOWER = 4, 0.6  # columns of text; of the cells of a table: those that begin with a small letter
MOST_COLUMNS = 60  # of one table
_MOST_WAYS = 20  # in which names may be over columns, from each of these on

Columns = list[tuple[float, float]]


def columns_of(lines: list[Line]) -> Columns:
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


def parts_of(line: Line, cell: Cell, columns: Columns, *, is_head: bool) -> Iterator[Cell]:
    """A cell, cut where its words go on in another column: in a wide gap, between figures, before the last figure."""
    words = [word for word in line.words if cell[1] <= word[1] and word[2] <= cell[2]]
    at: list[int] = []
    for _, left, right in words:
        column = column_at(columns, left, right)
        at.append(at[-1] if at and not left < columns[column][1] > columns[column][0] < right else column)
    cuts = [
        i
        for i, (before, after) in enumerate(pairwise(words), 1)
        if at[i] != at[i - 1]
        and (after[1] - before[2] > APART * line.size or (not is_head and is_figure(before[0]) and is_figure(after[0])))
    ]
    if not is_head and len(words) - 1 not in cuts and len({*at[:1], *at[-1:]}) > 1 and is_figure(words[-1][0]):
        cuts.append(len(words) - 1)
    if line.is_from_right or not cuts:
        yield cell
        return
    for start, stop in pairwise([0, *cuts, len(words)]):
        part = words[start:stop]
        yield " ".join(text for text, _, _ in part), part[0][1], part[-1][2]


def is_figure(text: str) -> bool:
    return any(map(str.isdigit, text)) and not any(map(str.isalpha, text))


def joined(columns: Columns, lines: list[Line]) -> Columns:
    """The columns, one that only the first row fills joined with one beside it that this row leaves free."""
    filled = [{column_at(columns, left, right) for _, left, right in line.cells} for line in lines]
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


def column_at(columns: Columns, left: float, right: float) -> int:
    """The column that a cell overlaps most, or is nearest to."""
    overlaps = [min(right, end) - max(left, begin) for begin, end in columns]
    return overlaps.index(max(overlaps))


def over(line: Line, columns: Columns) -> Iterator[Cell]:
    """Its names once for each of the columns in whose middle they stand, if these leave none out between them.

    Of several ways that one is taken whose widest name is over the fewest columns, and all are over the most.
    """
    are_few = 1 < len(line.cells) <= len(columns) <= MOST_COLUMNS
    best = min(_ways(line.cells, columns), key=_width, default=[]) if are_few else []
    for at, (text, left, right) in enumerate(line.cells):
        near = column_at(columns, left, right)
        for column in columns[best[at]] if best else columns[near : near + 1]:
            yield text, *column


def _ways(names: list[Cell], columns: Columns) -> list[list[slice]]:
    """Ways to put names into the middles of columns, each next to the one before.

    But for the first column of a table they are over two or more: what is over one each may leave some out.
    """
    slack = (columns[-1][1] - columns[0][0]) / len(columns) / 4  # one column more or less would move a middle by half
    after: dict[int, list[list[slice]]] = {start: [[]] for start in range(len(columns) + 1)}
    for _, left, right in reversed(names):
        ways: dict[int, list[list[slice]]] = {}
        for start, (begin, _) in enumerate(columns):
            stops = range(start + 2 - (start == 0), len(columns) + 1)
            fits = (stop for stop in stops if abs(begin + columns[stop - 1][1] - left - right) / 2 < slack)
            ways[start] = [[slice(start, stop), *way] for stop in fits for way in after.get(stop, [])][:_MOST_WAYS]
        after = ways
    return [way for several in after.values() for way in several]


def _width(way: list[slice]) -> tuple[int, int]:
    return max(one.stop - one.start for one in way), way[0].start - way[-1].stop


def is_prose(lines: list[Line], columns: Columns) -> bool:
    """True if the columns hold sentences that go on from line to line, not the cells of a table."""
    if not 1 < len(columns) <= _MOST_PROSE:
        return False
    by_column: list[list[str]] = [[] for _ in columns]
    for line in lines:
        for text, left, right in line.cells:
            by_column[column_at(columns, left, right)].append(text)
    words = [sum(len(text.split()) for text in texts) / max(len(texts), 1) for texts in by_column]
    firsts = [text[0] for texts in by_column for text in texts[1:] if text[0].isalpha()]
    later = sum(len(texts) - 1 for texts in by_column if texts)
    return min(words) >= 3 and sum(map(str.islower, firsts)) >= 0.3 * max(later, 1)


def is_stretched(lines: list[Line]) -> bool:
    """True if the cells are the words of sentences, set wide apart so that their lines are full."""
    cells = [text for line in lines for text, _, _ in line.cells]
    num_lower = sum(text[:1].islower() for text in cells)
    return len(cells) > _MOST_PROSE * len(lines) and num_lower > _MOST_LOWER * len(cells)
