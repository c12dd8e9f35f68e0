"""Lines of a PDF page put in order: columns, tables, words broken at line ends, what stands on every page."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby, pairwise

from ondevice.documents.formats.pdf_glyphs import ASKEW, Box, Run, in_frame
from ondevice.documents.formats.pdf_lines import Line, Value, put_into_lines

_LONGEST_STEP = 5.0  # of the size: rows further apart are not of one table
_NEXT_LINE = 2.2  # of the size: a lone line further below belongs to no column of text
_GAP = 0.3  # of the size, at least, between two columns
_EDGE = 0.1  # of the height of the page, where headers and footers stand
_LARGE, _MOST_LARGE = 2.0, 50  # of the usual size: type across other lines that is larger is a watermark
_MOST_ROWS, _MOST_COLUMNS = 200, 60  # of one table
_MOST_CELL_WORDS, _FEWEST_FIGURES = 4, 0.2  # of a table's cells, on average: words, and cells of figures alone
_MOST_WORDS = 200_000  # of a document that are remembered
_WORD = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*")
_BROKEN = re.compile(r"(\S*?)([^\W\d_]+)[-\u2010\u00ad]\Z")
_REST = re.compile(r"([^\W\d_]+)\S*[ \t]?")
# First parts of English words that keep their hyphen.
_FIRST_PARTS = frozenset(("cross", "full", "half", "hard", "high", "ill", "long", "low", "self", "short", "well"))

Columns = list[tuple[float, float]]


@dataclass(slots=True)
class Memory:
    """Of the pages before: lines on the edges of the last one, its last table, watermarks, words."""

    edges: set[tuple[str, int, int]] = field(default_factory=set)
    table: tuple[Columns, list[str]] | None = None
    across: set[str] = field(default_factory=set)
    words: set[str] = field(default_factory=set)


@dataclass(slots=True)
class _Block:
    """Lines that belong together: rows of a table or of columns of text (`columns` are their ends), or plain ones."""

    lines: list[Line]
    columns: Columns = field(default_factory=list)
    is_prose: bool = True

    def rows(self) -> list[list[str]]:
        """The cells of each line, one a column."""
        rows = []
        for line in self.lines:
            row = [""] * len(self.columns)
            for text, left, right in line.cells:
                at = _column(self.columns, left, right)
                row[at] = f"{row[at]} {text}".strip()
            rows.append(row)
        return rows

    def texts(self) -> list[str]:
        if not self.columns:
            return [line.text for line in self.lines]
        rows = self.rows()
        if sum(line.is_from_right for line in self.lines) > len(self.lines) / 2:
            rows = [row[::-1] for row in rows]
        if self.is_prose:
            return [cell for column in zip(*rows, strict=True) for cell in column if cell]
        return [" | ".join(row).rstrip() for row in rows]


def lay_out(runs: list[Run], values: list[Value], paper: Box, memory: Memory) -> str:
    """The text of a page, in reading order; `memory` goes on to the next page.

    A line on the edge of the page that stood there on the page before, and a watermark seen before, are left out. A
    table that goes on from the page before gets its head again.
    """
    straight, across = _apart(runs)
    lines = _by_rows(put_into_lines(straight, values))
    blocks = list(_blocks(lines))
    edges = {(line.text, line.turn, round(line.base / 2)): id(line) for line in lines if _is_on_edge(line, paper)}
    again = [line for key, line in edges.items() if key in memory.edges]
    blocks = [block for block in blocks if block.columns or id(block.lines[0]) not in again] or blocks
    memory.edges = set(edges)
    if len(memory.words) < _MOST_WORDS:
        memory.words.update(_WORD.findall(" ".join(line.text for line in lines)))
    head = _head_again(blocks, memory)
    texts: list[str] = []
    for is_table, group in groupby(blocks, lambda block: bool(block.columns) and not block.is_prose):
        several = [text for block in group for text in block.texts()]
        if is_table and head:
            texts.append(head)
            head = ""
        texts += several if is_table else _rejoined(several, memory.words)
    new = [text for text in dict.fromkeys(across) if text not in memory.across]
    memory.across.update(new)
    return "\n".join(texts + new)


def _is_on_edge(line: Line, paper: Box) -> bool:
    """True in the tenth of the page at its upper and at its lower end, as the line runs."""
    _, low, _, high = in_frame(paper, line.turn)
    margin = _EDGE * (high - low)
    return not low + margin < line.base < high - margin


def _apart(runs: list[Run]) -> tuple[list[Run], list[str]]:
    """Runs of ordinary text, and the texts of what is drawn across them: askew, or large."""
    usual = statistics.median(run.size for run in runs) if runs else 0.0
    large = [run for run in runs if run.turn != ASKEW and run.size > _LARGE * usual and len(run.glyphs) > 2]
    crossing = [id(run) for run in large[:_MOST_LARGE] if any(_is_across(run, other) for other in runs)]
    straight = [run for run in runs if run.turn != ASKEW and id(run) not in crossing]
    across = [run.text.strip() for run in runs if id(run) in crossing]
    askew = "".join(run.text for run in runs if run.turn == ASKEW)
    return straight, [" ".join(text.split()) for text in (*across, *askew.split("\n")) if text.strip()]


def _is_across(run: Run, other: Run) -> bool:
    x, y = (other.box[0] + other.box[2]) / 2, (other.box[1] + other.box[3]) / 2
    is_in = run.box[0] < x < run.box[2] and run.box[1] < y < run.box[3]
    return is_in and other.size * _LARGE < run.size and other.turn == run.turn and len(other.glyphs) > 2


# -- columns and tables ----------------------------------------------------------------------------------------------


def _by_rows(lines: list[Line]) -> list[Line]:
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
    num_figures = sum(any(map(str.isdigit, cell)) and not any(map(str.isalpha, cell)) for cell in cells)
    num_words = sum(len(cell.split()) for cell in cells)
    is_table = num_words < _MOST_CELL_WORDS * len(cells) and num_figures > _FEWEST_FIGURES * len(cells)
    return [_merged(row) for row in rows] if len(shared) > 2 and is_table else lines


def _merged(row: list[Line]) -> Line:
    for line in row[1:]:
        for run in line.runs:
            row[0].take(run)
    row[0].cells = sorted((cell for line in row for cell in line.cells), key=lambda cell: cell[1])
    return row[0]


def _blocks(lines: list[Line]) -> Iterator[_Block]:
    start = 0
    while start < len(lines):
        rows = _rows(lines, start) if len(lines[start].cells) > 1 else []
        block = _in_columns(rows) or _Block(lines[start : start + 1])
        yield block
        start += len(block.lines)


def _rows(lines: list[Line], start: int) -> list[Line]:
    """Lines from this one on that leave the same gap free, each below the one before."""
    rows, gaps = [lines[start]], _gaps(lines[start])
    for line in lines[start + 1 : start + _MOST_ROWS]:
        last = rows[-1]
        if not _is_next_row(last, line):
            break
        free = [(max(a, c), min(b, d)) for a, b in gaps for c, d in _gaps(line)]
        gaps = [(left, right) for left, right in free if right - left > _GAP * line.size][:_MOST_COLUMNS]
        if not gaps:
            break
        rows.append(line)
    return rows


def _is_next_row(line: Line, after: Line) -> bool:
    step = line.base - after.base
    return line.turn == after.turn and 0 < step < _LONGEST_STEP * max(line.size, after.size)


def _gaps(line: Line) -> list[tuple[float, float]]:
    """Free places between the cells of a line; a line of one cell is free on both sides."""
    if len(line.cells) == 1:
        return [(-math.inf, line.left), (line.right, math.inf)]
    return [(before[2], after[1]) for before, after in pairwise(line.cells[:_MOST_COLUMNS])]


def _in_columns(rows: list[Line]) -> _Block | None:
    """The rows as a block in columns; None if they are no more than lines with wide gaps."""
    full = [line for line in rows if len(line.cells) > 1]
    if len(full) < 2:
        return None
    columns = _columns(full)
    is_prose = _is_prose(rows, columns)
    while len(rows[-1].cells) < 2 and (not is_prose or rows[-2].base - rows[-1].base > _NEXT_LINE * rows[-1].size):
        rows = rows[:-1]
    return _Block(rows, columns, is_prose) if len(columns) > 1 else None


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


def _column(columns: Columns, left: float, right: float) -> int:
    """The column that a cell overlaps most, or is nearest to."""
    overlaps = [min(right, end) - max(left, begin) for begin, end in columns]
    return overlaps.index(max(overlaps))


def _is_prose(lines: list[Line], columns: Columns) -> bool:
    """True if the columns hold sentences that go on from line to line, not the cells of a table."""
    if not 1 < len(columns) <= 4:
        return False
    by_column: list[list[str]] = [[] for _ in columns]
    for line in lines:
        for text, left, right in line.cells:
            by_column[_column(columns, left, right)].append(text)
    words = [sum(len(text.split()) for text in texts) / max(len(texts), 1) for texts in by_column]
    firsts = [text[0] for texts in by_column for text in texts[1:] if text[0].isalpha()]
    later = sum(len(texts) - 1 for texts in by_column if texts)
    return min(words) >= 3 and sum(map(str.islower, firsts)) >= 0.3 * max(later, 1)


def _head_again(blocks: list[_Block], memory: Memory) -> str:
    """The head of the table that goes on from the page before, "" if there is none; remembers the last table."""
    before, memory.table = memory.table, None
    tables = [block for block in blocks if block.columns and not block.is_prose]
    goes_on = bool(
        before and tables and any(tables[0] is block for block in blocks[:3]) and _is_alike(before[0], tables[0])
    )
    head = before[1] if before and goes_on and before[1] != tables[0].rows()[0] else []
    if tables and any(tables[-1] is block for block in blocks[-3:]):
        own = _head(tables[-1].rows()) or (before[1] if before and goes_on and len(tables) == 1 else None)
        memory.table = (tables[-1].columns, own) if own else None
    return " | ".join(head)


def _is_alike(columns: Columns, block: _Block) -> bool:
    pairs = zip(columns, block.columns, strict=False)
    return len(columns) == len(block.columns) and all(a[0] < b[1] and b[0] < a[1] for a, b in pairs)


def _head(rows: list[list[str]]) -> list[str] | None:
    """The first row, if it is without figures and most of the others have some."""
    figures = [any(any(map(str.isdigit, cell)) for cell in row) for row in rows]
    return rows[0] if not figures[0] and 2 * sum(figures) > len(rows) - 1 else None


# -- words broken at line ends ---------------------------------------------------------------------------------------


def _rejoined(texts: list[str], words: set[str]) -> list[str]:
    """The lines, with the second half of a broken word behind the first.

    Its hyphen goes, unless the word is known with it, or begins like a compound and is not known without.
    """
    lines = list(texts)
    for index, (line, after) in enumerate(pairwise(lines)):
        line = lines[index]
        broken, rest = _BROKEN.search(line), _REST.match(after)
        if not broken or not rest or not (after[0].islower() or line[-1] == "\u00ad"):
            continue
        first, second = broken[2], rest[1]
        is_compound = f"{first}-{second}" in words or (first.lower() in _FIRST_PARTS and first + second not in words)
        is_compound = is_compound or any(map(str.isalnum, broken[1]))  # the end of an address, or of several words
        hyphen = "-" if is_compound and line[-1] != "\u00ad" else ""
        lines[index] = line[:-1] + hyphen + rest[0].rstrip()
        lines[index + 1] = after[rest.end() :]
    return [line for line in lines if line.strip()]
