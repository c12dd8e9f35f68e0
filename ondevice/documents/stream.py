"""Text that never ends up in memory as a whole: standard input, read while it arrives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

from ondevice.documents.formats.decode import Decoder
from ondevice.documents.formats.normalize import normalize_chunks
from ondevice.documents.formats.plain import number_pages
from ondevice.documents.formats.sniff import refuse_binary
from ondevice.documents.formats.split import split_parts
from ondevice.documents.formats.terminal import without_terminal
from ondevice.documents.types import Document, Page
from ondevice.errors import EmptyDocument

_BLOCK_BYTES = 65_536


def read_stream(stream: BinaryIO, name: str = "standard input") -> Document:
    """A text stream as a document whose pages are made while they are asked for, once."""
    return Document(name=name, kind="txt", unit="part", pages=_pages(stream, name))


def _pages(stream: BinaryIO, name: str) -> Iterator[Page]:
    decoder = Decoder()
    has_text = False
    parts = split_parts(normalize_chunks(without_terminal(decoder.decode(_blocks(stream, name)))))
    for page in number_pages(parts, decoder):
        has_text = has_text or not page.text.isspace()
        yield page
    if not has_text:
        raise EmptyDocument("no text came in", where=name, fix="Check the command that writes into the pipe.")


def _blocks(stream: BinaryIO, name: str) -> Iterator[bytes]:
    # read1 gives what is there: a slow pipe is read line by line and not only once 64 KiB have come.
    read = getattr(stream, "read1", stream.read)
    is_first = True
    while block := read(_BLOCK_BYTES):
        if is_first:
            refuse_binary(block, name)
            is_first = False
        yield block
