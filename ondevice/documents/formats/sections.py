"""Blocks of a structured text (headings, paragraphs, rows) put together into sections."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ondevice.documents.formats.split import piece_chars, split_parts

SECTION_CHARS = 6000


@dataclass(frozen=True, slots=True)
class Block:
    """One line or paragraph with its line ends. A heading begins a new section."""

    text: str
    is_heading: bool = False


def join_sections(blocks: Iterable[Block], size: int = SECTION_CHARS) -> Iterator[str]:
    """Sections that begin at a heading and hold at most `size` characters, nothing lost between them.

    Headings that follow each other without text between them stay together. In a long text sections hold more further
    on, and not every heading begins one: see `piece_chars`.
    """
    held: list[str] = []
    number = length = 0
    has_body = False
    for block in blocks:
        least, most = piece_chars(number, size)
        if (block.is_heading and has_body and length >= least) or (length and length + len(block.text) > most):
            for section in split_parts(["".join(held)], size, number):
                yield section
                number += 1
            held, length, has_body = [], 0, False
        held.append(block.text)
        length += len(block.text)
        has_body = has_body or (not block.is_heading and not block.text.isspace())
    if held:
        yield from split_parts(["".join(held)], size, number)
