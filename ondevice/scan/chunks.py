"""A document cut into chunks that overlap a little, in page order; they end with a sentence where one ends."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

from ondevice.documents.tokens import DocumentTokens

_GAP = "\n"  # between two pages of one chunk
_SENTENCE_END = re.compile(r"[.!?][\"”’)\]]*(?=\s)|\n")  # noqa: RUF001
_PAST = 0.6  # of a chunk: an end of a sentence before that leaves too much of it empty


@dataclass(frozen=True, slots=True)
class Piece:
    """The part of a chunk that one page has.

    Attributes:
        index: of the page, from 0.
        first: its first character in the chunk; `begins`: the same in the text of the page.
    """

    index: int
    first: int
    begins: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """Tokens [start, stop) of a document as text."""

    start: int
    stop: int
    text: str
    pieces: tuple[Piece, ...]

    def place(self, at: int) -> tuple[int, int]:
        """The index of the page that a character of the chunk stands on, and its place in the text of the page."""
        piece = self.pieces[bisect_right([piece.first for piece in self.pieces], at) - 1]
        return piece.index, piece.begins + at - piece.first


def chunks(tokens: DocumentTokens, size: int, overlap: int) -> Iterator[Chunk]:
    """All of a document, which is tokenised to its end, in chunks of at most `size` tokens.

    Each begins with a sentence of the last `overlap` tokens of the one before, or in the middle of one that is longer.
    """
    start = 0
    while start < tokens.num_tokens:
        chunk = _cut(tokens, start, min(start + size, tokens.num_tokens))
        if chunk.stop < tokens.num_tokens:
            chunk = _cut(tokens, start, _sentence_end(tokens, chunk, start + int(_PAST * size)))
        yield chunk
        if chunk.stop >= tokens.num_tokens:
            return
        start = _next_start(tokens, chunk, overlap)


def _cut(tokens: DocumentTokens, start: int, stop: int) -> Chunk:
    parts, pieces, length = list[str](), list[Piece](), 0
    for index in range(tokens.page_index(start), tokens.page_index(stop - 1) + 1):
        begin, end = tokens.page_tokens(index)
        if begin == end:
            continue
        spans, text = tokens.page_spans(index), tokens.texts[index]
        first = int(spans[max(start - begin, 0), 0])
        last = len(text) if stop >= end else int(spans[stop - begin - 1, 1])
        if parts:
            length += len(_GAP)
        pieces.append(Piece(index, length, first))
        parts.append(text[first:last])
        length += last - first
    return Chunk(start, stop, _GAP.join(parts), tuple(pieces))


def _sentence_end(tokens: DocumentTokens, chunk: Chunk, least: int) -> int:
    """The token after the last end of a sentence in a chunk, or its own end where none comes after token `least`."""
    ends = [match.end() for match in _SENTENCE_END.finditer(chunk.text)]
    for end in reversed(ends):
        stop = _token_at(tokens, chunk, end)
        if stop < least:
            break
        if stop < chunk.stop:
            return stop
    return chunk.stop


def _next_start(tokens: DocumentTokens, chunk: Chunk, overlap: int) -> int:
    """The first token of the next chunk: of the first sentence that begins within the overlap."""
    least = max(chunk.stop - overlap, chunk.start + 1)
    if least >= chunk.stop:
        return chunk.stop
    tail = _cut(tokens, least, chunk.stop)
    for match in _SENTENCE_END.finditer(tail.text):
        start = _token_at(tokens, tail, match.end())
        if least <= start < chunk.stop:
            return start
    return least


def _token_at(tokens: DocumentTokens, chunk: Chunk, at: int) -> int:
    """The first token of a chunk that ends after its character `at`; the end of the chunk where none does."""
    if at >= len(chunk.text):
        return chunk.stop
    index, char = chunk.place(at)
    begin, _ = tokens.page_tokens(index)
    spans = tokens.page_spans(index)
    return min(begin + int(spans[:, 1].searchsorted(char, side="right")), chunk.stop)
