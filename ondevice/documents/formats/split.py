"""Cutting text that has no pages of its own. Every character goes into exactly one piece, in order.

A form feed ends the piece it stands in and becomes its line end. Pieces are longer further on in a long text, so that
there are never more of them than `limits.MAX_PAGES`, and few even of a stream that does not end.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator

PART_CHARS = 3000
# A cut is looked for in the last half of a part: at a paragraph, else a line, else a space.
_BREAKS = ("\n\n", "\n", " ")
# So many pieces have one size, and the next ones twice that, up to 64 times the first. The first 100,000 then hold more
# characters than any file may have (`Limits.text_chars`), even where all of them are as short as they can be.
_PIECES_OF_ONE_SIZE = 20_000
_MAX_DOUBLINGS = 6
# At most so many combining marks are followed back from a hard cut.
_MAX_MARKS = 32


def piece_chars(number: int, size: int) -> tuple[int, int]:
    """Characters of the piece at index `number`, where the first ones hold up to `size`.

    Returns:
        how many it must have before a form feed or a heading may end it, and how many it may have.
    """
    doublings = min(number // _PIECES_OF_ONE_SIZE, _MAX_DOUBLINGS)
    return (size << doublings) // 2 if doublings else 0, size << doublings


def split_parts(chunks: Iterable[str], size: int = PART_CHARS, number: int = 0) -> Iterator[str]:
    """Parts of at most `size` characters; shorter ones only at a form feed and at the end.

    Args:
        size: of the first ones; see `piece_chars`.
        number: index of the first part in its document.
    """
    held = ""
    for chunk in chunks:
        held += chunk
        start = 0
        while True:
            end = _part_end(held, start, *piece_chars(number, size))
            if end < 0:
                break
            yield held[start:end].replace("\f", "\n")
            start, number = end, number + 1
        held = held[start:]
    if held:
        yield held.replace("\f", "\n")


def split_pages(chunks: Iterable[str]) -> Iterator[str]:
    """Pages as the form feeds say; the last page may lack its form feed."""
    held: list[str] = []
    for chunk in chunks:
        first, *others = chunk.split("\f")
        held.append(first)
        for piece in others:
            held.append("\n")
            yield "".join(held)
            held = [piece]
    last = "".join(held)
    if last:
        yield last


def _part_end(text: str, start: int, least: int, size: int) -> int:
    """End of the part that begins at `start`, -1 when that is not known yet."""
    feed = text.find("\f", start + least, start + size)
    if feed >= 0:
        return feed + 1
    # One character more than a part: a hard cut has to see what follows it.
    if len(text) - start <= size:
        return -1
    middle, limit = start + size // 2, start + size
    for mark in _BREAKS:
        found = text.rfind(mark, middle, limit)
        if found >= 0:
            return found + len(mark)
    for end in range(limit, max(limit - _MAX_MARKS, middle), -1):
        if not unicodedata.combining(text[end]):
            return end
    return limit
