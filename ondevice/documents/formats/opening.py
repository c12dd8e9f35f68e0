"""Documents opened by their content, those that stand inside others among them; a ZIP archive of documents as one."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import replace

from ondevice.documents.formats.archive import Archive
from ondevice.documents.formats.normalize import normalize
from ondevice.documents.formats.reader import Reader, Request
from ondevice.documents.formats.sniff import sniff
from ondevice.documents.formats.table import BY_KIND
from ondevice.documents.types import Page
from ondevice.errors import DocumentError, OndeviceError, UnsupportedDocument

_NAME_CHARS = 200
_MAX_DEPTH = 3  # of an archive in a mail in an archive


def open_document(request: Request) -> Reader:
    """The reader for the document, chosen by its content."""
    module, function = BY_KIND[sniff(request)].reader
    reader: Reader = getattr(importlib.import_module(f"ondevice.documents.formats.{module}"), function)(request)
    return reader


def inner_pages(outer: Request, name: str, data: bytes) -> Iterator[Page]:
    """Pages of a document inside another one, each under a line with its name; one page with the reason if none is.

    Their numbers are those in it. Without a name, which `outer` has then, it is part of the text around it.
    """
    name = normalize(name)[-_NAME_CHARS:]
    inner = replace(outer, path=name or outer.path, data=data, first=1, depth=outer.depth + 1)
    number = 0
    try:
        if inner.depth > _MAX_DEPTH:
            raise RecursionError
        reader = open_document(inner)
        for page in reader.pages:
            number = page.number
            title = f"{name}, {reader.unit} {number}\n\n" if name and page.text.strip() else ""
            yield replace(page, text=title + page.text, problem=page.problem and f"{name or 'inside'}: {page.problem}")
    except MemoryError:
        raise
    except Exception as error:
        what = error.what if isinstance(error, OndeviceError) else f"it is damaged [{type(error).__name__}]"
        if isinstance(error, RecursionError):
            what = "it is nested too deeply"
        which = f"{name or 'inside'}{', the rest' if number else ''}"
        yield Page(number + 1, "", "skipped", f"{which} was not read: {what}")


def open_collection(request: Request) -> Reader:
    """The documents of the archive, in the order of their names; what cannot be read is named."""
    pages = (replace(page, number=number) for number, page in enumerate(_pages(request), 1))
    return Reader("zip", "part", pages)


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
