"""Tables of a PDF page whose rules are drawn: cells are what the rules enclose, however many lines stand in one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from ondevice.documents.formats.layout import Cell
from ondevice.documents.formats.pdf_columns import is_figure
from ondevice.documents.formats.pdf_glyphs import Run
from ondevice.documents.formats.pdf_lines import Line, Value, put_into_lines
from ondevice.documents.formats.pdf_rules import Grid
from ondevice.documents.formats.pdf_seen import Box
from ondevice.documents.formats.pdf_tables import Block
from ondevice.documents.formats.pdf_words import rejoined

_OVER = 0.5  # of the size: a letter may reach over a rule
_FEWEST_CELLS = 0.5  # of the parts that all rules make: with fewer it is a form
_LEAST_FILLED = 0.3  # of the cells of a table
_MOST_CELL_LINES = 40
_LEVEL = 0.3  # of the size: lines as near are at one height
_ALIKE = 0.7  # of the lines of a cell, more of which stand beside others and end early where they are rows
_LEADERS = ("...", ". .")
_BLANK = 0.5  # of the size: room that the next word takes beside itself
_MOST_APART = 1  # lines with a figure behind a wide gap: more are cells without rules between them


def ruled(
    grids: Sequence[Grid], runs: list[Run], values: list[Value], words: set[str]
) -> tuple[list[Block], list[Run]]:
    """Tables in grids, and the runs beside them.

    A grid with values that were filled in is a form, and one over whose edge a line goes on is no table.

    Args:
        words: that the document has, for those that are broken at the ends of lines.
    """
    tables: list[Block] = []
    for grid in grids:
        inside = [run for run in runs if _is_in(grid.box, run)]
        known = {*map(id, inside)}
        has_values = any(_is_in(grid.box, value.run) for value in values)
        goes_on = any(id(run) not in known and _touches(grid.box, run) for run in runs)
        table = None if has_values or goes_on else _table(grid, inside, words)
        if table is not None:
            runs = [run for run in runs if id(run) not in known]
            tables.append(table)
    return tables, runs


def _is_in(box: Box, run: Run) -> bool:
    x, y = _middle(run)
    return box[0] <= x <= box[2] and box[1] <= y <= box[3]


def _touches(box: Box, run: Run) -> bool:
    """True if a run stands at the height of a grid and begins or ends at its edge."""
    reach = _OVER * run.size
    return box[1] < _middle(run)[1] < box[3] and run.left < box[2] + reach and run.right > box[0] - reach


def _middle(run: Run) -> tuple[float, float]:
    left, bottom, right, top = run.box
    return (left + right) / 2, (bottom + top) / 2


def _table(grid: Grid, runs: list[Run], words: set[str]) -> Block | None:
    """The table in a grid; None where what stands in it keeps to no cells, or a cell holds rows."""
    if not runs or {run.turn for run in runs} != {0} or len(grid.cells) < _FEWEST_CELLS * len(grid.cell_at):
        return None
    texts = [list[Run]() for _ in grid.cells]
    for run in runs:
        if run.text.strip():
            at = _cell_at(grid, run)
            if at < 0:
                return None
            texts[at].append(run)
    lines = [put_into_lines(one, []) for one in texts]
    rows: list[list[Cell]] = [[] for _ in grid.y[1:]]
    beside: list[list[tuple[float, list[Line]]]] = [[] for _ in rows]
    for (top, first, bottom, last), inside in zip(grid.cells, lines, strict=True):
        text = " ".join(rejoined([line.text for line in inside], words))
        rows[top].append(Cell(text, last - first, bottom - top))
        beside[top].append((grid.x[last], inside))
    num_filled, most = sum(map(bool, lines)), max(map(len, lines))
    full = [row for row in beside if sum(bool(inside) for _, inside in row) > 1]
    if len(full) < 2 or num_filled < _LEAST_FILLED * len(lines) or most > _MOST_CELL_LINES:
        return None
    apart = [line for inside in lines for line in inside if "\t" in line.text]
    if sum(any(is_figure(text) for text, _, _ in line.cells) for line in apart) > _MOST_APART:
        return None
    if any(_has_rows(row, is_head=row is beside[0]) for row in full):
        return None
    all_lines = [line for inside in lines for line in inside]
    worded = [line for line in all_lines if any(map(str.isalpha, line.text))]
    if 2 * sum(line.is_from_right for line in worded) > len(worded):
        rows = [row[::-1] for row in rows]
    return Block(all_lines, [*pairwise(grid.x)], is_prose=False, ruled=rows)


def _cell_at(grid: Grid, run: Run) -> int:
    """The number of the cell that a run stands in; -1 where it stands in several."""
    slack, at = _OVER * run.size, grid.find(*_middle(run))
    left, _, right, _ = grid.box_of(at)
    return at if left - slack < run.left and run.end < right + slack else -1


def _has_rows(row: list[tuple[float, list[Line]]], *, is_head: bool) -> bool:
    """True if the rules go around several rows: lines of two cells, or of one with figures alone, stand beside others,
    and were not broken for want of room. Of each cell `row` has the right edge and the lines."""
    several = [(edge, inside) for edge, inside in row if len(inside) > 1]
    is_even = len({len(inside) for _, inside in row if inside}) == 1
    num_alike = 0
    for edge, inside in several:
        others = [line.base for _, other in several if other is not inside for line in other]
        level = sum(any(abs(line.base - base) < _LEVEL * line.size for base in others) for line in inside)
        if level <= _ALIKE * len(inside):
            continue
        if all(is_figure(line.text) for line in inside):
            return True
        early = sum(_ends_early(line, after, edge) for line, after in pairwise(inside)) > _ALIKE * (len(inside) - 1)
        begin_anew = all(len(line.words) == 1 or (is_even and line.text[:1].isupper()) for line in inside)
        is_told = len(inside) > 2 or all(any(map(str.isdigit, line.text)) for line in inside)
        num_alike += is_told and (early or (begin_anew and not is_head))
    return num_alike > 1


def _ends_early(line: Line, after: Line, edge: float) -> bool:
    """True if the first word of the next line, which is no bullet, had room on this one, or dots lead to its end."""
    word, left, right = after.words[0]
    has_room = any(map(str.isalnum, word)) and right - left + _BLANK * line.size < edge - line.right
    return has_room or line.text.endswith(_LEADERS)
