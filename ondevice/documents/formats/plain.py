"""Plain text and Markdown files: bytes to numbered pages."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from ondevice.documents.formats.decode import Decoder
from ondevice.documents.formats.normalize import normalize_chunks
from ondevice.documents.formats.reader import Reader, Request
from ondevice.documents.formats.sections import Block, join_sections
from ondevice.documents.formats.split import split_pages, split_parts
from ondevice.documents.types import Page
from ondevice.documents.worker.limits import MAX_PAGES

_BLOCK_BYTES = 262_144
# A "page" longer than this is no page: the form feeds of that file mean something else.
_MAX_PAGE_CHARS = 100_000
_HEADING = re.compile(r" {0,3}#{1,6}(?:[ \t]|$)")
_FENCE = re.compile(r" {0,3}(```|~~~)")


def open_text(request: Request) -> Reader:
    """A text with true pages when form feeds part it, else with parts."""
    path = Path(request.path)
    if _has_pages(path):
        return Reader("txt", "page", _read(path, split_pages, "page"))
    return Reader("txt", "part", _read(path, split_parts, "part"))


def open_markdown(request: Request) -> Reader:
    """Markdown as it is written, cut at its headings."""
    path = Path(request.path)
    return Reader("md", "section", _read(path, _split_markdown, "section"))


def number_pages(texts: Iterable[str], decoder: Decoder, unit: str = "part") -> Iterator[Page]:
    """Pages for pieces of text, with a note where one is white space only or could not be decoded in full."""
    for number, text in enumerate(texts, 1):
        if decoder.is_damaged and "\ufffd" in text:
            problem = f"some bytes of {unit} {number} are not {decoder.encoding.upper()} and are shown as \ufffd"
            yield Page(number, text, "unreadable", problem)
        elif not text.strip():
            yield Page(number, text, "blank", f"{unit} {number} is blank")
        else:
            yield Page(number, text)


def read_blocks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            yield block


def _read(path: Path, split: Callable[[Iterable[str]], Iterator[str]], unit: str) -> Iterator[Page]:
    decoder = Decoder()
    return number_pages(split(normalize_chunks(decoder.decode(read_blocks(path)))), decoder, unit)


def _has_pages(path: Path) -> bool:
    """True if form feeds part the text into pages: not so long that they are none, and not too many."""
    num_feeds = length = 0
    for chunk in Decoder().decode(read_blocks(path)):
        for index, piece in enumerate(chunk.split("\f")):
            if index:
                num_feeds, length = num_feeds + 1, 0
            length += len(piece)
            if length > _MAX_PAGE_CHARS or num_feeds >= MAX_PAGES:
                return False
    return num_feeds > 0


def _split_markdown(chunks: Iterable[str]) -> Iterator[str]:
    return join_sections(_blocks(chunk.replace("\f", "\n") for chunk in chunks))


def _blocks(chunks: Iterable[str]) -> Iterator[Block]:
    fence = ""
    for line in _lines(chunks):
        match = _FENCE.match(line)
        if match and (not fence or fence == match[1]):
            fence = "" if fence else match[1]
        yield Block(line, is_heading=not fence and bool(_HEADING.match(line)))


def _lines(chunks: Iterable[str]) -> Iterator[str]:
    held = ""
    for chunk in chunks:
        *lines, held = (held + chunk).split("\n")
        yield from (line + "\n" for line in lines)
    if held:
        yield held
