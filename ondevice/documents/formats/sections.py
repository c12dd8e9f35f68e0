"""Blocks of a structured text (headings, paragraphs, rows) put together into sections."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ondevice.documents.formats.split import piece_chars, split_parts
from ondevice.documents.types import Page

SECTION_CHARS = 6000


@dataclass(frozen=True, slots=True)
class Block:
    """One line or paragraph with its line ends, or a whole section of them. A heading begins a new section.

    `lost` names, in the singular, what is left out here: the user is told of each. `note` says why it is not sure.
    """

    text: str
    is_heading: bool = False
    lost: tuple[str, ...] = ()
    note: str = ""

    def page(self, number: int, unit: str) -> Page:
        """The block as a page of the document."""
        if not self.lost:
            return Page(number, self.text, "guessed" if self.note else "", self.note)
        counts = ((what.partition(" "), count) for what, count in Counter(self.lost).items())
        told = ", ".join(
            f"{count} {noun}{'s' if count > 1 else ''} {rest}".strip() for (noun, _, rest), count in counts
        )
        code = "partial" if self.text else "unreadable"
        problem = f"{unit} {number} is read without {told}"
        return Page(number, self.text, code, f"{problem}; {self.note}" if self.note else problem)


def as_pages(found: Iterable[Block], unit: str = "section") -> Iterator[Page]:
    """The blocks as pages, numbered from 1."""
    return (block.page(number, unit) for number, block in enumerate(found, 1))


def front_matter(about: dict[str, str], blocks: list[Block]) -> list[Block]:
    """The blocks behind what a file says of itself: title, author, date; a title that they begin with stands once."""
    lines = [
        f"{name}: {' '.join(value.split())}\n"
        for name, value in about.items()
        if value.strip() and not (name == "Title" and begin_with(value, blocks))
    ]
    if not lines or not any(block.text for block in blocks):
        return blocks
    return [Block("".join([*lines, "\n"]), is_heading=True), *blocks]


def begin_with(name: str, blocks: Sequence[Block]) -> bool:
    """True if the first blocks hold the words of the name, whatever stands between them."""
    return _words(name) in _words("".join(block.text for block in blocks[:3]))


def _words(text: str) -> str:
    return " ".join(["", *re.findall(r"\w+", text.casefold()), ""])


def join_sections(blocks: Iterable[Block], size: int = SECTION_CHARS) -> Iterator[str]:
    """The text of `sections`."""
    return (section.text for section in sections(blocks, size))


def sections(blocks: Iterable[Block], size: int = SECTION_CHARS) -> Iterator[Block]:
    """Sections that begin at a heading and hold at most `size` characters, nothing lost between them.

    Headings that follow each other without text between them stay together. In a long text sections hold more further
    on, and not every heading begins one: see `piece_chars`.
    """
    held: list[Block] = []
    number = length = 0
    has_body = False
    for block in blocks:
        least, most = piece_chars(number, size)
        if (block.is_heading and has_body and length >= least) or (length and length + len(block.text) > most):
            for section in _split(held, size, number):
                yield section
                number += 1
            held, length, has_body = [], 0, False
        held.append(block)
        length += len(block.text)
        has_body = has_body or (not block.is_heading and bool(block.text) and not block.text.isspace())
    yield from _split(held, size, number)


def _split(blocks: list[Block], size: int, number: int) -> Iterator[Block]:
    lost = tuple(what for block in blocks for what in block.lost)
    note = "; ".join(dict.fromkeys(block.note for block in blocks if block.note))
    for text in split_parts(["".join(block.text for block in blocks)], size, number):
        yield Block(text, lost=lost, note=note)
        lost, note = (), ""
    if lost:
        yield Block("", lost=lost)
