"""Plain text and Markdown: files to numbered pages, and standard input, read while it arrives."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO

from ondevice.documents.formats.decode import Decoder
from ondevice.documents.formats.guess import telling_lines
from ondevice.documents.formats.normalize import normalize_chunks
from ondevice.documents.formats.reader import Reader, Request
from ondevice.documents.formats.sections import Block, join_sections
from ondevice.documents.formats.sniff import refuse_binary
from ondevice.documents.formats.split import split_pages, split_parts
from ondevice.documents.formats.terminal import without_terminal
from ondevice.documents.types import Document, Page
from ondevice.documents.worker.limits import MAX_PAGES
from ondevice.errors import EmptyDocument

_BLOCK_BYTES, _STREAM_BYTES = 262_144, 65_536  # of a file, and of a stream
# A "page" longer than this is no page: the form feeds of that file mean something else.
_MAX_PAGE_CHARS = 100_000
_LINE_BYTES = 65_536
_HEADING = re.compile(r" {0,3}#{1,6}(?:[ \t]|$)")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")
# A heading may stand over a line of = or -, if it is the line of a paragraph and not of a list, quotation or table.
_UNDERLINE, _TEXT = re.compile(r" {0,3}(?:=+|-{2,})[ \t]*$"), re.compile(r" {0,3}(?![-+*>|#]|\d+[.)][ \t])\S")
_FRONT, _FRONT_END, _MAX_FRONT_LINES = re.compile(r"---[ \t]*$"), re.compile(r"(?:---|\.\.\.)[ \t]*$"), 200


def open_text(request: Request) -> Reader:
    """A text with true pages when form feeds part it, else with parts; a log as the terminal showed it."""
    is_paged = _has_pages(request)
    return read_lines(request, "txt", "page" if is_paged else "part", split_pages if is_paged else split_parts)


def open_markdown(request: Request) -> Reader:
    """Markdown as it is written, cut at its headings."""
    return read_lines(request, "md", "section", lambda chunks: join_sections(markdown_blocks(lines(chunks))))


def read_lines(request: Request, kind: str, unit: str, split: Callable[[Iterator[str]], Iterator[str]]) -> Reader:
    """A reader of a text that `split` cuts into pages, or makes pages of."""
    decoder = file_decoder(request)
    chunks = normalize_chunks(without_terminal(decoder.decode(read_blocks(request))))
    return Reader(kind, unit, number_pages(split(chunks), decoder, unit))


def file_decoder(request: Request) -> Decoder:
    """A decoder that takes its guess, if one is needed, from the whole file."""
    with request.open() as file:
        return Decoder(sample=b"".join(telling_lines(iter(lambda: file.readline(_LINE_BYTES), b""))))


def number_pages(texts: Iterable[str], decoder: Decoder, unit: str = "part") -> Iterator[Page]:
    """Pages for pieces of text, with a note on one that is blank, could not be decoded in full, or rests on a guess."""
    said = ""
    for number, text in enumerate(texts, 1):
        if decoder.is_damaged and "\ufffd" in text:
            problem = f"some bytes of {unit} {number} are not {decoder.encoding.upper()} and are shown as \ufffd"
            yield Page(number, text, "unreadable", problem)
        elif decoder.note != said:
            said = decoder.note
            yield Page(number, text, "guessed", decoder.note)
        elif not text.strip():
            yield Page(number, text, "blank", f"{unit} {number} is blank")
        else:
            yield Page(number, text)


def read_blocks(request: Request) -> Iterator[bytes]:
    """The bytes of a document, in blocks."""
    with request.open() as file:
        while block := file.read(_BLOCK_BYTES):
            yield block


def _has_pages(request: Request) -> bool:
    """True if form feeds part the text into pages: not so long that they are none, and not too many."""
    num_feeds = length = 0
    for chunk in file_decoder(request).decode(read_blocks(request)):
        for index, piece in enumerate(chunk.split("\f")):
            if index:
                num_feeds, length = num_feeds + 1, 0
            length += len(piece)
            if length > _MAX_PAGE_CHARS or num_feeds >= MAX_PAGES:
                return False
    return num_feeds > 0


def markdown_blocks(written: Iterable[str]) -> Iterator[Block]:
    """Lines of Markdown, with its headings of both forms; code and front matter have none."""
    fence = before = ""
    for number, line in enumerate(written):
        match = _FENCE.match(line)
        if fence == "---" or (number == 0 and _FRONT.match(line)):
            is_over = number > _MAX_FRONT_LINES or (number > 0 and _FRONT_END.match(line))
            fence = "" if is_over else "---"
            yield Block(line, is_heading=True)  # so that it stands with the first heading
            continue
        if match and not fence:
            fence = match[1]
        elif match and match[1].startswith(fence) and not match[2].strip():
            fence = ""
        elif not fence and _UNDERLINE.match(line) and _TEXT.match(before):
            yield Block(before + line, is_heading=True)
            before = ""
            continue
        elif not fence and _HEADING.match(line):
            yield Block(before)
            yield Block(line, is_heading=True)
            before = ""
            continue
        yield Block(before)
        before = line
    yield Block(before)


def lines(chunks: Iterable[str]) -> Iterator[str]:
    """Lines with their ends; a very long one in pieces. A form feed is a line end."""
    held = ""
    for chunk in chunks:
        *whole, held = (held + chunk.replace("\f", "\n")).split("\n")
        yield from (line + "\n" for line in whole)
        if len(held) > _LINE_BYTES:
            yield held
            held = ""
    if held:
        yield held


def read_stream(stream: BinaryIO, name: str = "standard input") -> Document:
    """A text stream as a document whose pages are made while they are asked for, once."""
    return Document(name=name, kind="txt", unit="part", pages=_stream_pages(stream, name))


def _stream_pages(stream: BinaryIO, name: str) -> Iterator[Page]:
    decoder = Decoder()
    has_text = False
    parts = split_parts(normalize_chunks(without_terminal(decoder.decode(_stream_blocks(stream, name)))))
    for page in number_pages(parts, decoder):
        has_text = has_text or not page.text.isspace()
        yield page
    if not has_text:
        raise EmptyDocument("no text came in", where=name, fix="Check the command that writes into the pipe.")


def _stream_blocks(stream: BinaryIO, name: str) -> Iterator[bytes]:
    # read1 gives what is there: a slow pipe is read line by line and not only once 64 KiB have come.
    read = getattr(stream, "read1", stream.read)
    is_first = True
    while block := read(_STREAM_BYTES):
        if is_first:
            refuse_binary(block, name)
            is_first = False
        yield block
