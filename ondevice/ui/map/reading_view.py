"""The document's text with what became of every token, in pieces small enough to send one by one.

A piece is some hundred tokens of one page. It ends at the end of a line or of a word where there is one nearby, so
that the pieces of a page can stand below each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from ondevice.documents.shown import as_shown, without_gone
from ondevice.serving.token_map import Look
from ondevice.serving.token_view import TokenView

PIECE_TOKENS = 384
_SEARCHED = 128  # tokens before the end of a piece among which a better end is looked for
_MAX_CHARS = 12_000  # of a piece: 64 kB even where every character takes four bytes and some for its mark
_CONTEXT_CHARS = 48


def num_pieces(num_tokens: int) -> int:
    """Pieces of a page; a page without text has one as well."""
    return max(-(-num_tokens // PIECE_TOKENS), 1)


def piece(view: TokenView, index: int, part: int, look: Look, cuts: Sequence[int] = ()) -> dict[str, Any]:
    """One piece of the page at `index`: its tokens [start, stop), and runs of tokens that fared alike.

    A run is [number of tokens, text, state, step]; see `Cells`. Runs also end before the tokens `cuts`.
    """
    first, last = view.tokens.page_tokens(index)
    text, spans = _page(view, index)
    begin, end = (_cut(text, spans, at) for at in (part * PIECE_TOKENS, (part + 1) * PIECE_TOKENS))
    start, stop = first + begin, min(first + end, last)
    cells = view.cells(start, stop, 1, look)
    marks = cells.states.astype(np.int64) | cells.steps.astype(np.int64) << 4
    within = [cut - start for cut in cuts if start < cut < stop]
    edges = sorted({0, *(np.flatnonzero(np.diff(marks)) + 1).tolist(), *within, len(marks)})
    runs, room = [], _MAX_CHARS
    for run, after in pairwise(edges):
        shown = without_gone(_text_of(text, spans, begin + run, begin + after))
        if part and not run:  # what parted it from the piece before
            shown = shown.removeprefix(" ")
        if len(shown) > room:
            shown = shown[:room] + f"… ({len(shown) - room:,} characters are not shown)"
        room = max(room - len(shown), 0)
        runs.append([after - run, shown, int(cells.states[run]), int(cells.steps[run])])
    page = view.tokens.page_numbers[index]
    return {"page": page, "heading": view.tokens.heading(page), "start": start, "stop": stop, "runs": runs}


def excerpt(view: TokenView, start: int, stop: int) -> dict[str, str]:
    """The text of the tokens [start, stop), up to the end of the page and to a line's length, with some `before` it
    and `after` it."""
    index = view.tokens.page_index(start)
    first, last = view.tokens.page_tokens(index)
    text, spans = _page(view, index)
    begin, end = int(spans[start - first][0]), _char_of(text, spans, min(stop, last) - first)
    end = max(min(end, begin + 2 * _CONTEXT_CHARS), int(spans[start - first][1]) if stop - start == 1 else begin)
    parts = {"before": text[max(begin - _CONTEXT_CHARS, 0) : begin], "text": text[begin:end]}
    parts["after"] = text[end : end + _CONTEXT_CHARS]
    return {name: without_gone(part) for name, part in parts.items()}


def _page(view: TokenView, index: int) -> tuple[str, npt.NDArray[np.int32]]:
    """Text as it is shown, and character spans (n, 2) of its tokens, of the page at an index."""
    return as_shown(view.tokens.document.kind)(view.tokens.texts[index]), view.tokens.page_spans(index)


def _cut(text: str, spans: npt.NDArray[np.int32], at: int) -> int:
    """End of a piece that would end before token `at`: after a line or a word, if one ends shortly before."""
    if at <= 0:
        return 0
    if at >= len(spans):
        return len(spans)
    for ending in ("\n", ". ", " "):
        for token in range(at, at - _SEARCHED, -1):
            begin, before = int(spans[token][0]), int(spans[token - 1][0])
            if begin > before and ending in text[before : begin + len(ending) - 1]:
                return token
    return at


def _text_of(text: str, spans: npt.NDArray[np.int32], begin: int, end: int) -> str:
    start = 0 if begin == 0 else _char_of(text, spans, begin)  # what stands before the first token belongs to it
    return text[start : _char_of(text, spans, end)]


def _char_of(text: str, spans: npt.NDArray[np.int32], token: int) -> int:
    """Start of a token's text; that of the last one ends with the page."""
    return int(spans[token][0]) if token < len(spans) else len(text)
