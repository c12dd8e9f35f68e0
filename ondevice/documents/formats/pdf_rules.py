"""Rules that are drawn on a PDF page, and the grids of cells that they make."""

from __future__ import annotations

import ctypes
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pypdfium2 as pdfium
import pypdfium2.raw as raw

from ondevice.documents.formats.pdf_seen import Box

_THIN, _SHORTEST = 2.5, 4.0  # points: what is drawn as a rule is no thicker, and longer
_NEAR = 3.0  # points: rules as near are one, and meet
_COVERED = 0.6  # of a side of a cell, that a rule along it covers
_MOST_PATHS, _MOST_SEGMENTS, _MOST_RULES = 5000, 20_000, 600  # of a page; of one direction: others are maps
_MOST_ROWS, _MOST_COLUMNS = 200, 60

Rule = tuple[float, float, float]  # where it is across its direction, and from where to where it goes along it


@dataclass(slots=True)
class Grid:
    """Cells between rules, in points of the page.

    Attributes:
        x, y: edges of its columns, from the left, and of its rows, from the top.
        cells: (first row, first column, row after the last, column after it) of each.
        cell_at: the number of the cell that each part between two edges is of, row after row.
    """

    x: list[float]
    y: list[float]
    cells: list[tuple[int, int, int, int]]
    cell_at: list[int]

    @property
    def box(self) -> Box:
        return self.x[0], self.y[-1], self.x[-1], self.y[0]

    def box_of(self, cell: int) -> Box:
        """Left, bottom, right and top of a cell."""
        top, left, bottom, right = self.cells[cell]
        return self.x[left], self.y[bottom], self.x[right], self.y[top]

    def find(self, x: float, y: float) -> int:
        """The number of the cell around a point within the grid."""
        column = min(bisect_right(self.x, x), len(self.x) - 1) - 1
        row = min(bisect_right(self.y, -y, key=lambda edge: -edge), len(self.y) - 1) - 1
        return self.cell_at[row * (len(self.x) - 1) + column]


def grids_on(page: pdfium.PdfPage) -> list[Grid]:
    """The grids of rules on a page, each of several rows and columns."""
    level, plumb, num_segments = list[Rule](), list[Rule](), 0
    for number, path in enumerate(page.get_objects(filter=[raw.FPDF_PAGEOBJ_PATH], max_depth=1)):
        num_segments += raw.FPDFPath_CountSegments(path.raw)
        if number > _MOST_PATHS or num_segments > _MOST_SEGMENTS:
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
    if not (fill.value or has_stroke.value):
        return
    matrix, x, y = raw.FS_MATRIX(), ctypes.c_float(), ctypes.c_float()
    raw.FPDFPageObj_GetMatrix(path, matrix)
    parts = list[list[tuple[float, float]]]()
    for at in range(raw.FPDFPath_CountSegments(path)):
        segment = raw.FPDFPath_GetPathSegment(path, at)
        raw.FPDFPathSegment_GetPoint(segment, x, y)
        kind = raw.FPDFPathSegment_GetType(segment)
        point = (
            matrix.a * x.value + matrix.c * y.value + matrix.e,
            matrix.b * x.value + matrix.d * y.value + matrix.f,
        )
        if kind == raw.FPDF_SEGMENT_MOVETO or not parts:
            parts.append([])
        elif kind == raw.FPDF_SEGMENT_LINETO and has_stroke.value:
            yield _box([parts[-1][-1], point])
        parts[-1].append(point)
        if raw.FPDFPathSegment_GetClose(segment) and has_stroke.value:
            yield _box([point, parts[-1][0]])
    if fill.value:
        yield from (_box(points) for points in parts if len(points) > 2)


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


def _ends(places: Iterable[float]) -> list[float]:
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
    x = _ends([*(one[0] for one in plumb), *(end for one in level for end in one[1:])])
    y = _ends([*(one[0] for one in level), *(end for one in plumb for end in one[1:])])[::-1]
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
    cells, cell_at = list[tuple[int, int, int, int]](), [0] * (num_rows * num_columns)
    for several in parts.values():
        rows, columns = {part // num_columns for part in several}, {part % num_columns for part in several}
        if len(rows) * len(columns) != len(several):  # around a corner
            return None
        for part in several:
            cell_at[part] = len(cells)
        cells.append((min(rows), min(columns), max(rows) + 1, max(columns) + 1))
    return Grid(x, y, cells, cell_at)


def _is_ruled(rules: Sequence[Rule], begin: float, end: float) -> bool:
    """True if rules cover most of a side."""
    covered = sum(max(0.0, min(end, stop) - max(begin, start)) for _, start, stop in rules)
    return covered > _COVERED * (end - begin)
