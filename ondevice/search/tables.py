"""Rows of tables that a question names, each cell with the name of its column.

A small reader that has to count columns takes the figure beside the right one.
"""

from __future__ import annotations

import csv
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice, pairwise, takewhile

from ondevice.search.bm25 import terms

_MOST_ROWS = 8  # that a question names; one with more is about none of them
_MOST_CHARS = 1_200  # of all of them
_MOST_LINES = 2_000  # of one table that are looked at
_NEAR = 0.6  # of the best row's score: others with as much are meant, too
_LONGEST_LABEL = 40  # characters of a line between two rows, which names the rows beside it
_MOST_ABOVE = 3  # lines above a table that say what it is of
_DELIMITERS = ";\t|,"  # the last may stand in a number
_MOST_HEAD = 20_000  # characters in which the mark between cells is looked for
_FIGURE = re.compile(r"[^\w]*\d[\d.,:/%\s^{}*-]*[^\w]*")
_YEAR = re.compile(r"(?:19|20)\d\d")
_PERIOD = re.compile(rf"{_YEAR.pattern}(?:\s?[-\u2013/]\s?(?:\d\d){{1,2}})?")
_HEADING = re.compile(r"#{1,6} [^|]")
_RULE = re.compile(r"[\s|:+=-]*")
_ENDING = re.compile(r"(?<=[^\W\d]{4})(?:ings?|ed|es|(?<!s)s|e)$")
_USUAL = re.compile(
    r"[^\W\d]|of|in|on|at|to|by|is|it|an|as|or|no|be|do|the|and|for|are|was|were|has|had|have|did|does|its|that|this|with|from"
    r"|into|which|when|what|where|who|whom|whose|why|how|many|much|will|would|can|could|there|their|they|than|then|also"
    r"|about|more|any|all|not|you|me|tell|give|answer|few|words?|table|row|column|value|der|die|das|wie|viele?|und|von"
)


_Line = tuple[int, int, int, list[str]]  # index of a page, characters [start, stop) there, cells


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table: its page and characters [start, stop) there, its cells, and the names of their columns.

    `place` is what it stands under: a heading, in a collection with the document, and the lines above its table.
    """

    page_index: int
    start: int
    stop: int
    cells: tuple[str, ...]
    names: tuple[str, ...]
    place: str = ""

    def columns(self, asked: set[str]) -> list[int]:
        """The columns that are told: those asked for, those with its words, and those before the figures, or else all.

        Args:
            asked: words of the question.
        """
        columns = [at for at, cell in enumerate(self.cells) if cell]
        is_other = [_is_figure(cell) and not {*words_of(cell)} <= asked for cell in self.cells]
        known = [at for at in columns if not is_other[at] and _own_words(self.cells[at]) & asked]
        # Some names stand over two columns.
        names = [name or self.names[max(at - 1, 0)] for at, name in enumerate(self.names)]
        own, years = [{*words_of(name)} for name in names], _years(asked)
        held = _years(*own)
        if years - held and years & held:  # one of them is a column's in other words
            return columns
        wanted = [at for at in columns if _is_said(names[at], asked) and at not in known]
        for year in held:  # also one in other words, and those between, as in "from 2019 to 2023"
            if years and min(years) <= year <= max(years) and not any(year in own[at] for at in wanted):
                wanted += [at for at in columns if year in own[at] and at not in known]
        if not wanted and not years:  # the one that has more of the question's words than any other, and not one alone
            shared = {at: len(_own_words(names[at]) & asked) for at in columns if at not in known}
            most = max(shared.values(), default=0)
            best = [at for at, number in shared.items() if number == most > 1]
            wanted = best if len(best) == 1 else []
        first = next((at for at in columns if _is_number(self.cells[at])), len(self.cells))
        is_chosen = any(at >= first for at in wanted)
        return [at for at in columns if not is_chosen or at < first or at in known or at in wanted]

    def told(self, asked: set[str]) -> str:
        """Names and cells of those columns, after its place."""
        cells = (f"{self.names[at]}: {self.cells[at]}".removeprefix(": ") for at in self.columns(asked))
        return f"{self.place}: ".removeprefix(": ") + "; ".join(cells) + "."


def _is_said(name: str, asked: set[str]) -> bool:
    """True if a question has all words of a name but usual ones; letters alone, as in "y.o.y", are none of these."""
    letters = {word for word in words_of(name) if len(word) == 1 and word != "s"}
    return set() < _own_words(name) <= asked and letters <= asked


def _years(*texts: set[str]) -> set[str]:
    return {word for words in texts for word in words if _YEAR.fullmatch(word)}


def told_of(rows: Sequence[Row], question: str) -> str:
    """A sentence for the question with the rows that it names, as many as are read quickly; "" if none."""
    told = ""
    for line in (f"{row.told({*words_of(question)})} " for row in rows):
        told += line if len(told) + len(line) <= _MOST_CHARS else ""
    return f"A table of the document says: {told.rstrip()}\n\n" if told else ""


def rows_named(
    question: str,
    pages: Sequence[tuple[int, str]],
    place: Callable[[int, int], str] = lambda page_index, start: "",
    *,
    is_csv: bool = False,
) -> list[Row]:
    """The rows of tables that a question names by their cells, in the order of the text; none where they are many.

    Where it names the place of some of them, the others are left out.

    Args:
        pages: indices and texts of those in which they may stand.
        place: of a row, by the index of its page and its first character there.
        is_csv: the texts are tables whose cells commas or other marks part.
    """
    asked = words_of(question)
    rows = list(_rows(pages, is_csv))
    if not rows:
        return []
    hits = _hits(rows, asked)
    held_by = Counter(one for hit in hits for one in hit)
    scores, best = list[float](), dict[str, float]()
    for row, hit in zip(rows, hits, strict=True):
        num_columns = len((_own_words(" ".join(row.names)) | _years({*words_of(row.place)})) & {*asked})
        is_meant = bool(hit) and (num_columns > 0 or len(hit) > 1)
        scores.append(is_meant * (sum(math.log(1 + len(rows) / held_by[one]) for one in hit) + num_columns))
        best |= {one: max(scores[-1], best.get(one, 0.0)) for one in hit}
    least = max(_NEAR * max(scores), 1e-9)
    at = [i for i, score in enumerate(scores) if score >= least and any(score >= best[one] for one in hits[i])]
    places = {i: filter(None, (place(rows[i].page_index, rows[i].start), rows[i].place)) for i in at}
    found = [replace(rows[i], place=", ".join(places[i])) for i in at]
    there = [len(_own_words(row.place) & {*asked}) for row in found]
    found = [row for row, shared in zip(found, there, strict=True) if shared == max(there)]
    if len({row.place for row in found}) == 1:  # it tells nothing apart, and a small model reads past what it has to
        found = [replace(row, place="") for row in found]
    return found if len(found) <= _MOST_ROWS else []


def _hits(rows: Sequence[Row], asked: list[str]) -> list[set[str]]:
    """Of each row the cells that stand in the question as a whole, and of its other words those that a cell has."""
    cells = [[" ".join(words_of(cell)) for cell in row.cells] for row in rows]
    spoken = f" {' '.join(asked)} "
    named = {term for row in rows for name in row.names for term in words_of(name)}
    whole = {cell for row in cells for cell in row if f" {cell} " in spoken and (_own_words(cell) or " " in cell)}
    whole -= {cell for cell in whole if cell.isdigit() and cell in named}
    for cell in sorted(whole, key=len, reverse=True):  # a cell within a longer one is meant where it stands once more
        whole -= set() if f" {cell} " in spoken else {cell}
        spoken = spoken.replace(f" {cell} ", "  ")
    loose = _own_words(spoken) - named
    short = [{term for cell in row if len(cell) <= 2 * _LONGEST_LABEL for term in cell.split()} for row in cells]
    return [(whole & {*row}) | (loose & words) for row, words in zip(cells, short, strict=True)]


def words_of(text: str) -> list[str]:
    """The words of a text as they are compared: folded, without the endings of "trained", "training" and "trains"."""
    return [_stem(word) for word in terms(text)]


@lru_cache(1 << 16)
def _stem(word: str) -> str:
    return word if _USUAL.fullmatch(word) else _ENDING.sub("", word)


def _own_words(text: str) -> set[str]:
    return {word for word in words_of(text) if not _USUAL.fullmatch(word)}


def begins_with_row(text: str) -> bool:
    """True if a table may go on in the text of a page whose names stand on the page before."""
    return any(map(_is_figure, _first_cells(text)))


def _first_cells(text: str) -> list[str]:
    """The cells at the top of a page, below lines as short as its running head."""
    for line in text.split("\n", 3)[:3]:
        cells = _cells(line, "|")
        if len(cells) > 1 or not 0 < len(line.strip()) <= _LONGEST_LABEL:
            return cells
    return []


def _rows(pages: Iterable[tuple[int, str]], is_csv: bool) -> Iterator[Row]:
    """The rows of all tables that have names above their columns, be it on the page before."""
    lines, above, between, last = list[_Line](), list[str](), list[str](), -1
    for index, text in pages:
        goes_on = not is_csv and index == last + 1 and begins_with_row(text)
        if not goes_on or not lines or len(_first_cells(text)) != len(lines[-1][-1]):
            yield from _with_names(lines, above)
            lines, between = [], []
        last = index
        if "|" not in text and not is_csv:
            continue
        mark = _delimiter(text) if is_csv else "|"
        for match in re.finditer(r"[^\n]+(?:\n|\Z)|\n", text):
            line = match[0].strip()
            cells = [] if mark == "|" and _HEADING.match(line) else _cells(match[0].rstrip("\n"), mark)
            if len(cells) > 1:
                if num_before := _num_of_another(lines, cells):
                    yield from _with_names(lines[:num_before], above)
                    lines = lines[num_before:]
                if num_before or not lines:
                    above = between
                lines.append((index, *match.span(), cells))
                between = []
                continue
            if not 0 < len(line) <= _LONGEST_LABEL:
                yield from _with_names(lines, above)
                lines = []
            if line:
                is_name = len(line) <= 2 * _LONGEST_LABEL and line[0] != "#" and line[-1] not in ".:;,"
                between = [*between[1 - _MOST_ABOVE :], line] if is_name else []
    yield from _with_names(lines, above)


def _num_of_another(lines: list[_Line], cells: list[str]) -> int:
    """The number of these lines that are of a table before the one with the names `cells`; 0 if those are no names."""
    if any(map(_is_figure, cells)):
        return 0
    near = range(len(lines), max(len(lines) - _MOST_ABOVE - 1, 0), -1)
    last = next((at for at in near if any(map(_is_figure, lines[at - 1][-1]))), 0)
    is_wider = 0 < last == len(lines) and len(cells) > len(lines[-1][-1])
    return last if is_wider or (not cells[0] and 2 * sum(map(bool, cells)) > len(cells)) else 0


def _delimiter(text: str) -> str:
    """The mark that parts the first lines into equally many cells, and into most."""
    lines = [line for line in text[:_MOST_HEAD].split("\n")[:6] if line.strip()]
    counts = {mark: [len(_cells(line, mark)) for line in lines] for mark in _DELIMITERS}
    is_even = {mark: len({*found}) == 1 and found[0] > 1 for mark, found in counts.items()}
    return max(_DELIMITERS, key=lambda mark: (is_even[mark], max(counts[mark], default=0)))


def _cells(line: str, mark: str) -> list[str]:
    if mark not in line:
        return []
    if mark != "|":
        return [cell.strip() for cell in next(csv.reader([line], delimiter=mark), [])]
    if line.startswith("|"):  # as in Markdown
        line = "" if _RULE.fullmatch(line) else line.strip()[1:].removesuffix("|")
    return [_without_leader(cell.strip()) for cell in line.split("|")]


def _without_leader(cell: str) -> str:
    """A cell without the dots that lead from it to the next one."""
    bare = cell.rstrip(". ")
    return bare if cell.count(".", len(bare)) > 2 else cell


def _is_number(cell: str) -> bool:
    return len(cell) <= _LONGEST_LABEL and bool(_FIGURE.fullmatch(cell))  # longer ones would take long


def _is_figure(cell: str) -> bool:
    return _is_number(cell) and not _PERIOD.fullmatch(cell.strip(" *†()"))


def _is_alone(cells: list[str]) -> bool:
    """True for the one name over several columns, or a line above the table that was taken for a row of it."""
    return not cells[0] and sum(map(bool, cells)) == 1 and not any(map(_is_figure, cells))


def _with_names(lines: list[_Line], above: list[str]) -> Iterator[Row]:
    """The rows below the names of their columns, with the lines above these; none where a table has no such names."""
    num_aside = _num_aside([cells for *_, cells in lines])
    titles = (" ".join(filter(None, cells)) for *_, cells in lines[:num_aside])
    above, lines = [*above, *(title for title in titles if len(title) <= 2 * _LONGEST_LABEL)], lines[num_aside:]
    alone = [*takewhile(_is_alone, (cells for *_, cells in lines))]
    place = ", ".join([*above, *map("".join, alone)][-_MOST_ABOVE:])
    lines, head = lines[max(len(alone) - 1, 0) :], list[list[str]]()
    for *_, cells in lines[:3]:
        upper = [*filter(None, head[-1])] if head else []
        is_fuller = bool(head) and "" in head[-1][1:] and sum(map(bool, cells)) > len(upper)
        if len({*upper}) < len(upper):  # names over several columns
            after = lines[len(head) + 1 : len(head) + 2]
            is_fuller |= any(_is_figure(cell) for *_, below in after for cell in below)
        if any(map(_is_figure, cells)) or (head and cells[0] and (head[-1][0] or not is_fuller)):
            break
        head.append(cells)
    if not head:
        return
    width = max(map(len, head))
    below = [cells for *_, cells in lines[len(head) : _MOST_LINES]]
    if 2 * sum(len(cells) == width + 1 and not _is_figure(cells[0]) for cells in below) > len(below):
        head, width = [["", *cells] for cells in head], width + 1  # the first column has no name
    head = [cells + [""] * (width - len(cells)) for cells in head]
    for upper, lower in zip(head[-2::-1], head[:0:-1], strict=True):
        _spread(upper, lower)
    names = tuple(" ".join(dict.fromkeys(filter(None, column))) for column in zip(*head, strict=True))
    for index, start, stop, cells in islice(lines, len(head), _MOST_LINES):
        if len(cells) <= width:
            yield Row(index, start, stop, (*cells, *[""] * (width - len(cells))), names, place)


def _num_aside(lines: list[list[str]]) -> int:
    """The number of first lines that are text in fewer columns than the table below them, as a number and a title."""
    sizes = Counter(len(cells) for cells in lines if any(map(_is_figure, cells)))
    usual = max(sizes, key=lambda size: sizes[size], default=0)
    number = 0
    for cells, after in pairwise(lines):
        num_filled, num_after = sum(map(bool, cells)), sum(map(bool, after))
        are_names = len(after) >= usual and not any(map(_is_figure, after))
        is_short = len(cells) < usual - (not are_names) or (are_names and 2 * num_filled <= num_after)
        # Names over several columns have others below that begin further right.
        if any(map(_is_figure, cells)) or not (is_short and cells[0] and after[0]):
            break
        number += 1
    return number


def _spread(upper: list[str], lower: list[str]) -> None:
    """Tell a name in all columns that it stands in the middle of, none of whose own names are the same."""
    is_spread = any(name and name == after for name, after in pairwise(upper))
    over: dict[int, list[int]] = {at: [] for at, name in enumerate(upper) if name and lower[at] and not is_spread}
    for column, name in enumerate(lower[1:], 1):
        if name and over:
            nearest = min(over, key=lambda at: abs(at - column))
            is_again = name in [lower[at] for at in over[nearest]]
            over[next((at for at in over if at > nearest), nearest) if is_again else nearest].append(column)
    for at, columns in over.items():
        if columns and abs(sum(columns) / len(columns) - at) <= 1 / 2:
            upper[columns[0] : columns[-1] + 1] = [upper[at]] * (columns[-1] + 1 - columns[0])
