"""Documents opened by their content, those that stand inside others among them."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import replace

from ondevice.documents.formats.normalize import normalize
from ondevice.documents.formats.reader import Reader, Request
from ondevice.documents.formats.sniff import sniff
from ondevice.documents.formats.table import BY_KIND
from ondevice.documents.types import Page
from ondevice.errors import OndeviceError

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


def renumbered(pages: Iterator[Page]) -> Iterator[Page]:
    """The pages under the numbers that they have together."""
    return (replace(page, number=number) for number, page in enumerate(pages, 1))
