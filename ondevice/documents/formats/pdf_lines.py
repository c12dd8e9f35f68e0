"""Runs of characters on a PDF page put into lines: spaces, raised figures, right-to-left order, cells of a row."""

from __future__ import annotations

import math
import re
import statistics
import unicodedata
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import groupby, pairwise, zip_longest

from ondevice.documents.formats.pdf_glyphs import Run
from ondevice.documents.formats.pdf_spoken import Placed, composed, spoken

_SPACE = 0.15  # of the size: a gap as wide is a space between words
_SPACE_ARABIC = 0.1
_SPACE_WIDE = 0.4  # between signs of Chinese and Japanese, which are set without spaces
_TRACKED = 0.08  # of the size: where all letters are set further apart than this, the gap of a space is wider by it
_NO_SPACE = 0.03  # of the size: a space character that takes no more room is none
_CELL = 1.0  # of the size: a gap as wide may part two columns
_WIDE = 2.0  # of the size: a gap as wide parts what stands on one line
_BESIDE = 0.6  # of the size: what is drawn later belongs to a line if it is as near to it
_LEVEL = 0.3  # of the size: lines as near are of one height
_SMALL = 0.85  # of the size of the line: raised and lowered figures are smaller
_LOOK_BACK = 8  # lines of one height that a run drawn later may belong to
_MARK, _LONGEST_MARK = re.compile(r"[^\w\s]|\(?\w{1,3}[.)\u2236:]|\[[\w+]{1,8}\]|\d+(?:\.\d+)+\.?"), 10
_FIGURE = re.compile(r"\(?[\d\u2012-\u2015\u2212-]")
_UNSPACED = re.compile("[\u3001-\u30ff\u3400-\u9fff\uf900-\ufaff]{2}")
_FROM_RIGHT = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")

Cell = tuple[str, float, float]


@dataclass(slots=True)
class Line:
    """Runs that stand on one line. `cells` are its texts between wide gaps: (text, left, right), from the left.

    `words` are those between all gaps. One with `is_row` has a cell of several lines, one with `is_over` the names of
    a table below it.
    """

    turn: int
    base: float
    size: float
    left: float
    right: float
    runs: list[Run] = field(default_factory=list)
    cells: list[Cell] = field(default_factory=list)
    words: list[Cell] = field(default_factory=list)
    is_from_right: bool = False
    is_row: bool = False
    is_over: bool = False

    @property
    def text(self) -> str:
        parts = [self.cells[0][0]]
        for before, (text, left, _) in pairwise(self.cells):
            parts += ["\t" if left - before[2] > _WIDE * self.size else " ", text]
        return "".join(parts[::-1] if self.is_from_right else parts)

    def take(self, run: Run) -> None:
        """Put one more run on the line."""
        if run.size > self.size:
            self.base, self.size = run.base, run.size
        self.left, self.right = min(self.left, run.left), max(self.right, run.right)
        self.runs.append(run)


def levels(lines: list[Line]) -> list[list[Line]]:
    """The lines of each height, from the top of the page, as each turn has it."""
    rows: list[list[Line]] = []
    for line in sorted(lines, key=lambda line: (line.turn, -line.base)):
        last = rows[-1][-1] if rows else None
        if last and last.turn == line.turn and last.base - line.base < _LEVEL * line.size:
            rows[-1].append(line)
        else:
            rows.append([line])
    return rows


def merged(row: list[Line]) -> Line:
    """The lines of a row as one: the first of them, which takes the others."""
    for line in row[1:]:
        for run in line.runs:
            row[0].take(run)
    row[0].cells = sorted((cell for line in row for cell in line.cells), key=lambda cell: cell[1])
    row[0].words = sorted((word for line in row for word in line.words), key=lambda word: word[1])
    return row[0]


@dataclass(slots=True)
class Value:
    """Something that was filled in: its text as a run, and the name of the field."""

    run: Run
    name: str


def put_into_lines(runs: list[Run], values: list[Value]) -> list[Line]:
    """Lines in the order of the file; a run that fills a gap of a line above goes there, a value beside its label."""
    lines: list[Line] = []
    near: dict[tuple[int, int], list[Line]] = defaultdict(list)
    for run in runs:
        if not run.text.strip() and (not lines or not _is_level(lines[-1], run)):
            continue
        level = round(run.base / 10)
        others = (line for step in (0, -1, 1) for line in near[run.turn, level + step][-_LOOK_BACK:])
        line = lines[-1] if lines and _goes_on(lines[-1], run) else None
        line = line or next((one for one in others if _fits(one, run)), None)
        if line is None:
            line = Line(run.turn, run.base, run.size, run.left, run.right)
            lines.append(line)
            near[run.turn, level].append(line)
        line.take(run)
    for value in values:
        _put_value(lines, value)
    for line in lines:
        line.cells = _cells(line)
    return [line for line in lines if line.cells]


def _is_level(line: Line, run: Run) -> bool:
    """True if they stand at one height, or one is raised or lowered beside the other."""
    small, large = sorted((line.size, run.size))
    shift = abs(line.base - run.base)
    if line.turn != run.turn or shift > 0.7 * large:
        return False
    if shift <= 0.3 * small:
        return True
    if small < _SMALL * large:
        return max(run.left - line.right, line.left - run.right) < 0.7 * large
    gaps = (max(run.left - other.right, other.left - run.right) for other in line.runs[-200:])
    return any(-0.5 * large < gap < 0.1 * large for gap in gaps)  # not one in a cell between them


def _goes_on(line: Line, run: Run) -> bool:
    return _is_level(line, run) and (run.left > line.right - 0.5 * run.size or _is_free(line, run))


def _fits(line: Line, run: Run) -> bool:
    reach = _BESIDE * max(line.size, run.size)
    is_near = max(line.left - run.right, run.left - line.right) < reach
    touches = (abs(run.left - other.right) < reach or abs(other.left - run.right) < reach for other in line.runs[-200:])
    return _is_level(line, run) and is_near and _is_free(line, run) and any(touches)


def _is_free(line: Line, run: Run) -> bool:
    slack = 0.5 * run.size
    return all(run.end - other.left < slack or other.end - run.left < slack for other in line.runs[-200:])


def _put_value(lines: list[Line], value: Value) -> None:
    run = value.run
    beside = [line for line in lines if line.turn == run.turn and abs(line.base - run.base) < 0.6 * run.size]
    if not beside:
        text = f"{value.name}: {run.text}" if value.name else run.text
        run.glyphs = spread(text, run.left, run.right, 0.6 * run.size)
        above = [index for index, line in enumerate(lines) if line.turn == run.turn and line.base > run.base]
        at = min(above, key=lambda index: lines[index].base, default=-1) + 1 if above else len(lines)
        lines.insert(at, Line(run.turn, run.base, run.size, run.left, run.right, [run]))
        return
    line = min(beside, key=lambda line: max(line.left - run.right, run.left - line.right, abs(line.base - run.base)))
    before = [other.right for other in line.runs if other.left < run.left]
    after = [other.left for other in line.runs if other.left >= run.left]
    gap = 0.3 * line.size  # a label and its value are no columns of a table
    move = max(before) + gap - run.left if before else min(after) - gap - run.right
    run.glyphs = [(text, left + move, right + move) for text, left, right in run.glyphs]
    run.base, run.size = line.base, line.size
    line.take(run)


def spread(text: str, left: float, right: float, widest: float) -> list[tuple[str, float, float]]:
    """Glyphs for a text that has a place as a whole, each at most as wide as that."""
    step = min((right - left) / max(len(text), 1), widest)
    return [(character, left + i * step, left + (i + 1) * step) for i, character in enumerate(text)]


# -- the text of a line ----------------------------------------------------------------------------------------------


def _cells(line: Line) -> list[Cell]:
    """Texts between wide gaps, from the left. Within a run, what is read from the right is in reading order already."""
    runs = sorted(line.runs, key=lambda run: run.left)
    text = "".join(run.text for run in runs)
    num_from_right = len(_FROM_RIGHT.findall(text))
    line.is_from_right = 2 * num_from_right > sum(map(str.isalpha, text))
    if num_from_right:
        groups = [(is_so, [*group]) for is_so, group in groupby(runs, lambda run: bool(_FROM_RIGHT.search(run.text)))]
        ordered = groups[::-1] if line.is_from_right else groups
        runs = [run for is_so, group in ordered for run in (group[::-1] if is_so else group)]
    glyphs = [glyph for run in runs for glyph in _placed(line, run)]
    if not num_from_right and any(after.left < run.right - 0.5 * run.size for run, after in pairwise(runs)):
        # A space without room stands where the next letter begins.
        glyphs.sort(key=lambda glyph: glyph.left - glyph.text.isspace() * _NO_SPACE * line.size)
    glyphs = composed(glyphs)
    cells: list[list[Placed]] = [[]]
    spaces, room, begin = "", 0.0, 0.0
    for glyph, after in zip_longest(glyphs, glyphs[1:]):
        if glyph.text.isspace():
            begin = begin if spaces else glyph.left
            spaces, room = spaces + " ", room + glyph.right - glyph.left
            continue
        if cells[-1]:
            last = cells[-1][-1]
            gap, lead = max(glyph.left - last.right, last.left - glyph.right), min(last.lead, glyph.lead)
            space = (
                _SPACE_ARABIC if num_from_right else _SPACE_WIDE if _UNSPACED.match(last.text + glyph.text) else _SPACE
            )
            is_space = gap > space * max(last.size, glyph.size) + lead
            if spaces:
                takes_room = gap > _NO_SPACE * line.size or glyph.left - begin > _SPACE * line.size
                is_space = room <= 0 or lead < 0 or takes_room
            is_leader = glyph.text == "." and (after is None or abs(after.left - glyph.right) > _NO_SPACE * line.size)
            if len(spaces) < 2 and gap > _CELL * line.size and not is_leader and not _is_mark_of_list(cells):
                cells.append([])
            elif is_space:
                cells[-1].append(Placed(spaces or " ", glyph.left, glyph.right))
        cells[-1].append(glyph)
        spaces, room = "", 0.0
    parts = [(blank, [*part]) for cell in cells for blank, part in groupby(cell, lambda glyph: glyph.text.isspace())]
    line.words = [_cell(part) for blank, part in parts if not blank]
    return _with_currency(sorted((_cell(cell) for cell in cells if cell), key=lambda cell: cell[1]))


def _with_currency(cells: list[Cell]) -> list[Cell]:
    """The cells, with a currency that is set apart from its figure in one with that."""
    kept: list[Cell] = []
    for text, left, right in cells:
        before = kept[-1][0] if kept else ""
        if len(before) == 1 and unicodedata.category(before) == "Sc" and _FIGURE.match(text):
            text, left = f"{before} {text}", kept.pop()[1]
        kept.append((text, left, right))
    return kept


def _cell(glyphs: list[Placed]) -> Cell:
    return spoken(glyphs), min(one.left for one in glyphs), max(one.right for one in glyphs)


def _is_mark_of_list(cells: list[list[Placed]]) -> bool:
    """True if the line so far is a bullet, a number with a stop or in brackets, which begins no table."""
    return (
        len(cells) == 1
        and len(cells[0]) <= _LONGEST_MARK
        and bool(_MARK.fullmatch("".join(glyph.text for glyph in cells[0])))
    )


def _placed(line: Line, run: Run) -> list[Placed]:
    glyphs = run.glyphs
    both = [(one, other) for one, other in pairwise(glyphs) if one[0] != " " != other[0]]
    gaps = [max(other[1] - one[2], one[1] - other[2]) for one, other in both]
    lead = statistics.median(gaps) if len(gaps) > 2 else 0.0
    shift = (run.base - line.base) / line.size * (1 if run.size < _SMALL * line.size else 0.4)
    rise = 1 if shift > 0.12 else -1 if shift < -0.08 else 0
    lead = lead if abs(lead) > _TRACKED * run.size else 0.0
    if lead < 0 and " " in run.text:  # boxes that are too wide tell nothing of spaces, which stand there
        lead = -math.ulp(0.0)
    return [Placed(text, left, right, rise, lead, run.size) for text, left, right in glyphs]
