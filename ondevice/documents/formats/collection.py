"""A ZIP archive of documents as one document: each file under its name; what cannot be read is named."""

from __future__ import annotations

from collections.abc import Iterator

from ondevice.documents.formats.archive import Archive
from ondevice.documents.formats.opening import inner_pages, renumbered
from ondevice.documents.formats.reader import Reader, Request
from ondevice.documents.types import Page
from ondevice.errors import DocumentError, UnsupportedDocument


def open_collection(request: Request) -> Reader:
    """The documents of the archive, in the order of their names."""
    return Reader("zip", "part", renumbered(_pages(request)))


def _pages(request: Request) -> Iterator[Page]:
    has_text = False
    with Archive(request.open(), request.name) as archive:
        for name in archive.files():
            if name.startswith("__MACOSX/") or name.rpartition("/")[2].startswith("."):
                continue  # what macOS adds, and hidden files
            try:
                data = archive.read(name)
            except DocumentError as error:
                yield Page(1, "", "skipped", f"{name} was not read: {error.what}")
                continue
            for page in inner_pages(request, name, data):
                has_text = has_text or bool(page.text)
                yield page
    if not has_text and not request.depth:
        fix = "Unpack it and open the documents one by one."
        raise UnsupportedDocument("no document in this ZIP archive can be read", where=request.name, fix=fix)
