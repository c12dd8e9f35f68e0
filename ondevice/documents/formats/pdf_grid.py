"""Tables of a PDF page whose rules are drawn: cells are what the rules enclose, however many lines stand in one."""

from __future__ import annotations

import ctypes
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pypdfium2 as pdfium
import pypdfium2.raw as raw

from ondevice.documents.formats.layout import Cell
from ondevice.documents.formats.pdf_columns import is_figure
from ondevice.documents.formats.pdf_glyphs import Run
from ondevice.documents.formats.pdf_lines import Line, Value, put_into_lines
from ondevice.documents.formats.pdf_seen import Box
from ondevice.documents.formats.pdf_tables import Block
from ondevice.documents.formats.pdf_words import rejoined

_THIN, _SHORTEST = 2.5, 4.0  # points: what is drawn as a rule is no thicker, and longer
_NEAR = 3.0  # points: rules as near are one, and meet
_COVERED = 0.6  # of a side of a cell, that a rule along it covers
_MOST_PATHS, _MOST_SEGMENTS, _MOST_RULES = 5000, 200, 600  # of a page, of a path, and of one direction: others are maps
_MOST_ROWS, _MOST_COLUMNS = 200, 60

Rule = tuple[float, float, float]  # where it is across its direction, and from where to where it goes along it


_OVER = 0.5  # of the size: a letter may reach over a rule
_FEWEST_CELLS = 0.5  # of the parts that all rules make: with fewer it is a form
_LEAST_FILLED = 0.3  # of the cells of a table
_MOST_CELL_LINES = 40
_LEVEL = 0.3  # of the size: lines as near are at one height
_ALIKE = 0.7  # of the lines of a cell, more of which stand beside others and end early where they are rows
_LEADERS = ("...", ". .")
_BLANK = 0.5  # of the size: room that the next word takes beside itself
_MOST_APART = 1  # lines with a figure behind a wide gap: more are cells without rules between them


@dataclass(slots=True)
class Grid:
    """Cells between rules, in points of the page: (left, bottom, right, top).

    Attributes:
        columns: left and right ends, from the left.
        cells: each with the numbers of its first row and column, rows from the top, and of the ones after its last.
    """

    columns: list[tuple[float, float]]
    num_rows: int
    cells: list[tuple[Box, int, int, int, int]]

    @property
    def box(self) -> Box:
        boxes = [cell[0] for cell in self.cells]
        return (
            min(box[0] for box in boxes),
            min(box[1] for box in boxes),
            max(box[2] for box in boxes),
            max(box[3] for box in boxes),
        )


def grids_on(page: pdfium.PdfPage) -> list[Grid]:
    """The grids of rules on a page, each of several rows and columns."""
    level, plumb = list[Rule](), list[Rule]()
    for number, path in enumerate(page.get_objects(filter=[raw.FPDF_PAGEOBJ_PATH], max_depth=1)):
        if number > _MOST_PATHS:
            return []
        for left, bottom, right, top in _drawn(path.raw):
            if top - bottom < _THIN and right - left > _SHORTEST:
                level.append(((bottom + top) / 2, left, right))
            elif right - left < _THIN and top - bottom > _SHORTEST:
                plumb.append(((left + right) / 2, bottom, top))
    level, plumb = _joined(level), _joined(plumb)
    if min(len(level), len(plumb)) < 2 or max(len(level), len(plumb)) > _MOST_RULES:
        return []
    found = (_grid([level[at] for at in one], [plumb[at] for at in other]) for one, other in _touching(level, plumb))
    return [grid for grid in found if grid is not None]


def _drawn(path: raw.FPDF_PAGEOBJECT) -> Iterator[Box]:
    """Boxes around the straight parts of a path that is drawn, of what is filled around the whole."""
    fill, has_stroke = ctypes.c_int(), ctypes.c_int()
    raw.FPDFPath_GetDrawMode(path, fill, has_stroke)
    num_segments = raw.FPDFPath_CountSegments(path)
    if not (fill.value or has_stroke.value) or num_segments > _MOST_SEGMENTS:
        return
    matrix, x, y = raw.FS_MATRIX(), ctypes.c_float(), ctypes.c_float()
    raw.FPDFPageObj_GetMatrix(path, matrix)
    points, last = list[tuple[float, float]](), list[tuple[float, float]]()
    for at in range(num_segments):
        segment = raw.FPDFPath_GetPathSegment(path, at)
        raw.FPDFPathSegment_GetPoint(segment, x, y)
        kind = raw.FPDFPathSegment_GetType(segment)
        point = (
            matrix.a * x.value + matrix.c * y.value + matrix.e,
            matrix.b * x.value + matrix.d * y.value + matrix.f,
        )
        if kind == raw.FPDF_SEGMENT_MOVETO:
            yield from _around(points, is_filled=bool(fill.value))
            points, last = [point], [point]
            continue
        points.append(point)
        if kind == raw.FPDF_SEGMENT_LINETO and has_stroke.value:
            yield _box([*last, point])
        last = [point]
        if raw.FPDFPathSegment_GetClose(segment) and has_stroke.value:
            yield _box([point, points[0]])
    yield from _around(points, is_filled=bool(fill.value))


def _around(points: list[tuple[float, float]], *, is_filled: bool) -> Iterator[Box]:
    if is_filled and len(points) > 2:
        yield _box(points)


def _box(points: list[tuple[float, float]]) -> Box:
    across, up = zip(*points, strict=True)
    return min(across), min(up), max(across), max(up)


def _joined(rules: list[Rule]) -> list[Rule]:
    """The rules, those on one line that touch as one."""
    lines: dict[float, list[Rule]] = defaultdict(list)
    places = _ends(rule[0] for rule in rules)
    for rule in rules:
        lines[places[bisect_right(places, rule[0]) - 1]].append(rule)
    joined: list[Rule] = []
    for place, several in lines.items():
        start = len(joined)
        for _, begin, end in sorted(several, key=lambda rule: rule[1]):
            if len(joined) > start and begin <= joined[-1][2] + _NEAR:
                joined[-1] = (place, joined[-1][1], max(joined[-1][2], end))
            else:
                joined.append((place, begin, end))
    return joined


def _ends(places: Iterator[float]) -> list[float]:
    """Places that are not near to each other, rising: of near ones the first."""
    ends: list[float] = []
    for place in sorted(places):
        if not ends or place > ends[-1] + _NEAR:
            ends.append(place)
    return ends


def _touching(level: list[Rule], plumb: list[Rule]) -> Iterator[tuple[list[int], list[int]]]:
    """Numbers of level and of plumb rules that meet each other, directly or over others."""
    y, left, right = np.array(level).T[:, :, None]
    x, bottom, top = np.array(plumb).T[:, None, :]
    meet = (x > left - _NEAR) & (x < right + _NEAR) & (y > bottom - _NEAR) & (y < top + _NEAR)
    rest = meet.any(1)
    while rest.any():
        mine = np.zeros(len(level), bool)
        mine[rest.argmax()] = True
        while True:
            others = meet[mine].any(0)
            more = meet[:, others].any(1)
            if (more == mine).all():
                break
            mine = more
        rest &= ~mine
        yield np.flatnonzero(mine).tolist(), np.flatnonzero(others).tolist()


def _grid(level: list[Rule], plumb: list[Rule]) -> Grid | None:
    """The cells between some rules that meet; None where they make no table."""
    x = _ends(iter([*(one[0] for one in plumb), *(end for one in level for end in one[1:])]))
    y = _ends(iter([*(one[0] for one in level), *(end for one in plumb for end in one[1:])]))[::-1]
    if not (2 < len(x) <= _MOST_COLUMNS + 1 and 2 < len(y) <= _MOST_ROWS + 1):
        return None
    num_columns, num_rows = len(x) - 1, len(y) - 1
    upright = [[one for one in plumb if abs(one[0] - place) < _NEAR] for place in x]
    flat = [[one for one in level if abs(one[0] - place) < _NEAR] for place in y]
    first = [*range(num_rows * num_columns)]  # of the parts that are one cell, the number of the first one

    def of(part: int) -> int:
        while first[part] != part:
            part = first[part]
        return part

    for row in range(num_rows):
        for column in range(num_columns):
            part = row * num_columns + column
            if column + 1 < num_columns and not _is_ruled(upright[column + 1], y[row + 1], y[row]):
                first[max(of(part), of(part + 1))] = min(of(part), of(part + 1))
            if row + 1 < num_rows and not _is_ruled(flat[row + 1], x[column], x[column + 1]):
                first[max(of(part), of(part + num_columns))] = min(of(part), of(part + num_columns))
    parts: dict[int, list[int]] = defaultdict(list)
    for part in range(num_rows * num_columns):
        parts[of(part)].append(part)
    cells = []
    for several in parts.values():
        rows, columns = sorted(part // num_columns for part in several), sorted(part % num_columns for part in several)
        top, bottom, left, right = rows[0], rows[-1] + 1, columns[0], columns[-1] + 1
        cells.append(((x[left], y[bottom], x[right], y[top]), top, left, bottom, right))
    return Grid([*pairwise(x)], num_rows, cells)


def _is_ruled(rules: Sequence[Rule], begin: float, end: float) -> bool:
    """True if rules cover most of a side."""
    covered = sum(max(0.0, min(end, stop) - max(begin, start)) for _, start, stop in rules)
    return covered > _COVERED * (end - begin)


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
    num_parts = grid.num_rows * len(grid.columns)
    if not runs or {run.turn for run in runs} != {0} or len(grid.cells) < _FEWEST_CELLS * num_parts:
        return None
    texts = [list[Run]() for _ in grid.cells]
    for run in runs:
        if run.text.strip():
            at = _cell_at(grid, run)
            if at < 0:
                return None
            texts[at].append(run)
    lines = [put_into_lines(one, []) for one in texts]
    rows: list[list[Cell]] = [[] for _ in range(grid.num_rows)]
    beside: list[list[tuple[Box, list[Line]]]] = [[] for _ in rows]
    for (box, top, first, bottom, last), inside in zip(grid.cells, lines, strict=True):
        text = " ".join(rejoined([line.text for line in inside], words))
        rows[top].append(Cell(text, last - first, bottom - top))
        beside[top].append((box, inside))
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
    return Block(all_lines, grid.columns, is_prose=False, ruled=rows)


def _cell_at(grid: Grid, run: Run) -> int:
    """The number of the cell that a run stands in; -1 where it stands in several."""
    slack = _OVER * run.size
    at = next((at for at, (box, *_) in enumerate(grid.cells) if _is_in(box, run)), -1)
    left, _, right, _ = grid.cells[at][0]
    return at if left - slack < run.left and run.end < right + slack else -1


def _has_rows(row: list[tuple[Box, list[Line]]], *, is_head: bool) -> bool:
    """True if the rules go around several rows: lines of two cells, or of one with figures alone, stand beside others,
    and were not broken for want of room."""
    several = [(box, inside) for box, inside in row if len(inside) > 1]
    is_even = len({len(inside) for _, inside in row if inside}) == 1
    num_alike = 0
    for box, inside in several:
        others = [line.base for _, other in several if other is not inside for line in other]
        level = sum(any(abs(line.base - base) < _LEVEL * line.size for base in others) for line in inside)
        if level <= _ALIKE * len(inside):
            continue
        if all(is_figure(line.text) for line in inside):
            return True
        early = sum(_ends_early(line, after, box) for line, after in pairwise(inside)) > _ALIKE * (len(inside) - 1)
        begin_anew = all(len(line.words) == 1 or (is_even and line.text[:1].isupper()) for line in inside)
        is_told = len(inside) > 2 or all(any(map(str.isdigit, line.text)) for line in inside)
        num_alike += is_told and (early or (begin_anew and not is_head))
    return num_alike > 1


def _ends_early(line: Line, after: Line, cell: Box) -> bool:
    """True if the first word of the next line, which is no bullet, had room on this one, or dots lead to its end."""
    word, left, right = after.words[0]
    has_room = any(map(str.isalnum, word)) and right - left + _BLANK * line.size < cell[2] - line.right
    return has_room or line.text.endswith(_LEADERS)
