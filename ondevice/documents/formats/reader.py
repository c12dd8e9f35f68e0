"""The interface of every format: a request in, numbered pages out, one at a time."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from ondevice.documents.types import Page
from ondevice.errors import DocumentError
from ondevice.files import escaped
from ondevice.regular_file import identity_of, open_regular

OCR_FIX = "Run OCR first (for example ocrmypdf), then open the result."
PICTURE_FIX = "Its text is beside it; another viewer may draw it."


@dataclass(frozen=True, slots=True)
class Request:
    """One document to read. `first` is above 1 when an earlier worker was lost on the page before.

    `draw` is the number of a page to draw instead; 0: the text is wanted. With a `width` in pixels it is drawn small,
    without its letters, and those of `beside` after it. `scans` are pages of a PDF whose words OCR is
    to read instead; empty: the text that the file holds is wanted. A document inside another one has its bytes
    in `data`, `path` is only its name there, and `depth` how many it is inside of. `identity` is that of the file which
    was looked at before; nothing: there was none.
    """

    path: str
    password: str | None = None
    first: int = 1
    draw: int = 0
    width: int = 0
    beside: tuple[int, ...] = ()
    scans: tuple[int, ...] = ()
    data: bytes | None = None
    depth: int = 0
    identity: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        return escaped(Path(self.path).name)

    @property
    def suffix(self) -> str:
        return Path(self.path).suffix.lower()

    def open(self) -> BinaryIO:
        """A file of its bytes, at the first one; raises DocumentError if it is no regular file, or another one."""
        if self.data is not None:
            return io.BytesIO(self.data)
        file = open_regular(self.path)
        if self.identity and identity_of(file) != tuple(self.identity):
            file.close()
            what = "another file has taken its place since it was opened"
            raise DocumentError(what, where=self.name, fix="Open it again.")
        return file

    def read(self) -> bytes:
        """All of its bytes."""
        with self.open() as file:
            return file.read()


@dataclass(frozen=True, slots=True)
class Reader:
    """An open document.

    `num_pages` is known only where every page can be reached on its own; then `pages` begins at `Request.first`,
    and losing one page does not lose those after it. Otherwise `pages` begins at 1.
    """

    kind: str
    unit: str
    pages: Iterator[Page]
    num_pages: int | None = None
