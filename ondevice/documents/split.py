"""Cutting text that has no pages of its own. Every character goes into exactly one piece, in order.

A form feed ends the piece it stands in and becomes its line end.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator

PART_CHARS = 3000
# A cut is looked for in the last half of a part: at a paragraph, else a line, else a space.
_BREAKS = ("\n\n", "\n", " ")
# At most so many combining marks are followed back from a hard cut.
_MAX_MARKS = 32


def split_parts(chunks: Iterable[str], size: int = PART_CHARS) -> Iterator[str]:
    """Parts of at most `size` characters; shorter ones only at a form feed and at the end."""
    held = ""
    for chunk in chunks:
        held += chunk
        start = 0
        while True:
            end = _part_end(held, start, size)
            if end < 0:
                break
            yield held[start:end].replace("\f", "\n")
            start = end
        held = held[start:]
    if held:
        yield held


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


def _part_end(text: str, start: int, size: int) -> int:
    """Where the part that begins at `start` ends, -1 when that is not known yet."""
    feed = text.find("\f", start, start + size)
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
