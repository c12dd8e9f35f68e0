"""The text of a PDF page from its lines: tables over pages, words broken at line ends, headers, watermarks."""

from __future__ import annotations

import math
import re
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, groupby

from ondevice.documents.formats.pdf_columns import Columns
from ondevice.documents.formats.pdf_glyphs import ASKEW, Run, in_frame, is_bold
from ondevice.documents.formats.pdf_grid import ruled
from ondevice.documents.formats.pdf_lines import Line, Value, put_into_lines
from ondevice.documents.formats.pdf_rules import Grid
from ondevice.documents.formats.pdf_seen import Box
from ondevice.documents.formats.pdf_tables import Block, blocks_of, by_rows, head_of, is_alike
from ondevice.documents.formats.pdf_words import rejoined
from ondevice.search.outline import headed

_EDGE = 0.1  # of the height of the page, where headers and footers stand
_LARGER, _LARGEST = 1.15, 1.5  # than the usual size: the letters of headings, and of those of the first level
_MOST_TITLE_LINES, _MOST_TITLE_CHARS, _MOST_BOLD_CHARS, _MOST_GOING_ON = 3, 160, 80, 40
_BULLET = re.compile(r"\s*[•‣◦▪■●\u2013*-]\s")
_NO_TITLE = re.compile(r"[.,;:]\s*\Z|\A\W*(?:figure|table|fig\.|abbildung|tabelle)\s", re.IGNORECASE)
_NUMBERED = re.compile(r"^\s*(?:\d{1,3}(?:\.\d{1,3})*|[A-Z](?:\.\d{1,3})*|[IVX]+)[.:)]?\s+")
_LARGE, _MOST_LARGE = 2.0, 50  # of the usual size: type across other lines that is larger is a watermark
_MOST_WORDS = 200_000  # of a document that are remembered
_WORD = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*")
Titles = dict[str, int]  # levels of headings, by their `title_words`


@dataclass(slots=True)
class Memory:
    """Of the pages before: lines on the edges of the last one, its last table, watermarks, words, looks of headings."""

    edges: set[tuple[str, int, int]] = field(default_factory=set)
    table: tuple[Columns, list[list[str]]] | None = None
    across: set[str] = field(default_factory=set)
    words: set[str] = field(default_factory=set)
    sizes: Counter[float] = field(default_factory=Counter)  # of letters, by their number
    levels: dict[float, int] = field(default_factory=dict)  # of headings with numbers, by their size


def lay_out(
    runs: list[Run],
    values: list[Value],
    paper: Box,
    memory: Memory,
    titles: Titles | None = None,
    turn: int = 0,
    grids: Sequence[Grid] = (),
) -> str:
    """The text of a page, in reading order; `memory` goes on to the next page.

    Headings are marked: the `titles` on it or, where the file names none, lines that are set apart.
    These run as the page is shown, `turn` quarter turns round. What stands in `grids` of rules are tables. A line on
    the edge of the page that stood there on the page before, and a watermark seen before, are left out. A table that
    goes on gets its head again.
    """
    straight, across = _apart(runs)
    tables, rest = ruled(grids, straight, values, memory.words)
    blocks = _with_tables([*blocks_of(by_rows(put_into_lines(rest, values)))], tables)
    lines = [line for block in blocks for line in block.lines]
    edges = {(line.text, line.turn, round(line.base / 2)): id(line) for line in lines if _is_on_edge(line, paper)}
    again = [line for key, line in edges.items() if key in memory.edges]
    blocks = [block for block in blocks if block.columns or id(block.lines[0]) not in again] or blocks
    is_first, memory.edges = not memory.sizes, set(edges)
    if len(memory.words) < _MOST_WORDS:
        memory.words.update(_WORD.findall(" ".join(line.text for line in lines)))
    head = _head_again(blocks, memory)
    titles = _set_apart(blocks, set() if is_first else {*edges.values()}, memory, turn) if titles is None else titles
    texts: list[str] = []
    for is_table, group in groupby(blocks, lambda block: bool(block.columns) and not block.is_prose):
        several = [text for block in group for text in block.texts()]
        if is_table and head:
            texts.append(head)
            head = ""
        texts += several if is_table else marked(rejoined(several, memory.words), titles)
    new = [text for text in dict.fromkeys(across) if text not in memory.across]
    memory.across.update(new)
    return "\n".join(texts + new)


def _with_tables(blocks: list[Block], tables: list[Block]) -> list[Block]:
    """The blocks, with each table beside the line that is nearest to it: behind one above, or before one below."""
    for table in tables:
        left, right = table.columns[0][0], table.columns[-1][1]
        high, low = max(line.base for line in table.lines), min(line.base for line in table.lines)
        near = [(math.inf, len(blocks))]
        for at, block in enumerate(blocks):
            for line in block.lines:
                if line.turn == 0 and line.left < right and line.right > left:
                    near.append((line.base - high, at + 1) if line.base > high else (max(low - line.base, 0.0), at))
        blocks.insert(min(near)[1], table)
    return blocks


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


def _head_again(blocks: list[Block], memory: Memory) -> str:
    """The head of the table that goes on from the page before, "" if there is none; remembers the last table."""
    before, memory.table = memory.table, None
    tables = [block for block in blocks if block.columns and not block.is_prose]
    goes_on = bool(
        before and tables and any(tables[0] is block for block in blocks[:3]) and is_alike(before[0], tables[0])
    )
    head = before[1] if before and goes_on and before[1] != tables[0].rows()[: len(before[1])] else []
    if tables and any(tables[-1] is block for block in blocks[-3:]):
        own = head_of(tables[-1].rows()) or (before[1] if before and goes_on and len(tables) == 1 else [])
        memory.table = (tables[-1].columns, own) if own else None
    return "\n".join(" | ".join(row).rstrip() for row in head)


# -- headings ----------------------------------------------------------------------------------------------------------


def title_words(text: str) -> str:
    """The words of a title without its number, by which it is found again on its page."""
    return "".join(filter(str.isalnum, (_NUMBERED.sub("", text).strip() or text).casefold()))


def marked(lines: list[str], titles: Titles) -> list[str]:
    """The lines, those that are `titles` marked as headings; each of these on one line."""
    found: list[str] = []
    start = 0
    while start < len(lines):
        several = lines[start : start + _MOST_TITLE_LINES] if titles else []
        joined = list(accumulate(several, lambda text, line: f"{text} {line}"))
        levels = [titles.get(title_words(text), 0) for text in joined]
        at = max((at for at, level in enumerate(levels) if level), default=-1)
        found.append(lines[start] if at < 0 else headed(" ".join(joined[at].split()), levels[at]))
        start += max(at, 0) + 1
    return found


def _set_apart(blocks: list[Block], on_edge: set[int], memory: Memory, turn: int) -> Titles:
    """Lines in larger letters than the most of the pages so far, and short ones in bold, as titles with their levels.

    Neighbours of one size are one title. None stand in tables, and none `on_edge` (ids of lines) counts pages.
    """
    for block in blocks:
        for line in block.lines:
            memory.sizes[round(line.size, 1)] += len(line.text)
    usual = memory.sizes.most_common(1)[0][0] if memory.sizes else 1.0
    lines = [line for block in blocks if block.is_prose for line in block.lines]
    is_out = [line.turn != turn or (id(line) in on_edge and _counts_pages(line.text)) for line in lines]
    levels = [0 if out else _level(line, usual) for line, out in zip(lines, is_out, strict=True)]
    titles: Titles = {}
    after = 0
    for (size, level), group in groupby(zip(lines, levels, strict=True), lambda one: (round(one[0].size, 1), one[1])):
        texts = [line.text for line, _ in group]
        text, after = " ".join(texts), after + len(texts)
        numbers = _NUMBERED.match(text)
        # Letters of fonts that are drawn seem larger beside brackets: a sentence that goes on is no title.
        following = lines[after].text if after < len(lines) else ""
        is_within = text[:1].islower() or following[:1].islower()
        goes_on = len(text) > _MOST_GOING_ON and not numbers and is_within
        if level and not goes_on and len(text) < _MOST_TITLE_CHARS and any(map(str.isalpha, text)):
            if numbers:
                memory.levels[size] = level = numbers[0].strip(" .").count(".") + 1
            titles[title_words(text)] = memory.levels.get(size, level)
    return titles


def _counts_pages(text: str) -> bool:
    """True for a line with a number that is not that of a section: a header or a footer."""
    return any(map(str.isdigit, text)) and not _NUMBERED.match(text)


def _level(line: Line, usual: float) -> int:
    """The level that the look of a line gives it as a heading; 0: none."""
    ratio = line.size / max(usual, 1.0)
    if line.is_row or _BULLET.match(line.text):
        return 0
    if ratio > _LARGER:
        return 1 if ratio > _LARGEST else 2
    is_short = ratio > 0.95 and len(line.text) < _MOST_BOLD_CHARS and not _NO_TITLE.search(line.text)
    return 3 if is_short and all(is_bold(run) for run in line.runs if run.text.strip()) else 0
