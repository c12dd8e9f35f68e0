"""PDF files, by pypdf: limits, opening, passwords, and how many pages there should be."""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from typing import Any

import pypdf
from pypdf import PdfReader
from pypdf.errors import DependencyError, LimitReachedError, PyPdfError

from ondevice.documents.formats.pdf_fonts import mend_space_widths
from ondevice.documents.formats.pdf_page import DamageCounter, read_page
from ondevice.documents.formats.pdf_repair import with_new_end
from ondevice.documents.formats.reader import Reader, Request
from ondevice.documents.types import Page
from ondevice.errors import DocumentError, DocumentTooComplex, PasswordRequired, UnsupportedDocument, WrongPassword

# Tighter than pypdf's own: no real page of text comes near them.
_CONFIGURATION: dict[str, Any] = {
    "zlib_maximum_output_length": 20_000_000,
    "lzw_maximum_output_length": 20_000_000,
    "run_length_maximum_output_length": 20_000_000,
    "brotli_maximum_output_length": 20_000_000,
    "array_based_stream_maximum_output_length": 20_000_000,
    "maximum_declared_stream_length": 50_000_000,
    "image_maximum_buffer_size": 20_000_000,
    "stream_filters_maximum_length": 4,
    "stream_decoding_work_maximum_length": 60_000_000,
    "stream_parsing_work_maximum_count": 400_000,
    "xform_maximum_invocations_per_extraction": 500,
    "page_tree_maximum_entries": 20_000,
    "page_tree_maximum_depth": 50,
    "outline_maximum_entries": 10_000,
    "jbig2dec_binary": None,
    "disable_legacy_handling": True,
}
_RESAVE_FIX = "Print it to a new PDF from a viewer that shows it, then open that."


def open_pdf(request: Request) -> Reader:
    """Open the file, with the empty password or the one given."""
    # A context variable, set for the whole life of the worker.
    pypdf.overwrite_configuration(**_CONFIGURATION)
    mend_space_widths()
    try:
        reader = _open(request)
        num_pages = len(reader.pages)
    except LimitReachedError as error:
        raise DocumentTooComplex(
            "its page tree is too large or too deep", where=request.name, fix=_RESAVE_FIX
        ) from error
    except DependencyError as error:
        raise UnsupportedDocument(
            "its kind of encryption is not known here", where=request.name, fix=_RESAVE_FIX
        ) from error
    except RecursionError as error:
        raise DocumentTooComplex("its objects are nested too deeply", where=request.name, fix=_RESAVE_FIX) from error
    if num_pages == 0:
        raise DocumentError("no page was found in it; the file is damaged", where=request.name, fix=_RESAVE_FIX)
    announced = max(num_pages, _announced_pages(reader))
    return Reader("pdf", "page", _pages(reader, request.first, num_pages, announced), announced)


def _open(request: Request) -> PdfReader:
    try:
        return _open_stream(BytesIO(request.read()), request)
    except LimitReachedError:
        raise
    except PyPdfError:
        repaired = with_new_end(request.read())
        if repaired is None:
            raise
        return _open_stream(repaired, request)


def _open_stream(source: BytesIO, request: Request) -> PdfReader:
    reader = PdfReader(source, strict=False, root_object_recovery_limit=10_000, xref_stream_maximum_entries=500_000)
    if reader.is_encrypted:
        _unlock(reader, request)
    return reader


def _unlock(reader: PdfReader, request: Request) -> None:
    # Most encrypted files only forbid printing and open with the empty password.
    if reader.decrypt(""):
        return
    if request.password is None:
        raise PasswordRequired("the file is encrypted", where=request.name, fix="Give the password that opens it.")
    if not reader.decrypt(request.password):
        raise WrongPassword("the password does not open the file", where=request.name, fix="Check it and try again.")


def _announced_pages(reader: PdfReader) -> int:
    """Number of pages that the file names: more than were found when its end has been cut off."""
    try:
        pages: Any = reader.root_object["/Pages"]
        count = pages["/Count"]
    except Exception:
        return 0
    return count if isinstance(count, int) and count <= _CONFIGURATION["page_tree_maximum_entries"] else 0


def _pages(reader: PdfReader, first: int, num_pages: int, announced: int) -> Iterator[Page]:
    damage = DamageCounter()
    for number in range(first, num_pages + 1):
        yield read_page(reader, number, damage)
    for number in range(max(first, num_pages + 1), announced + 1):
        problem = f"page {number} is missing: the file announces {announced} pages and holds {num_pages}"
        yield Page(number, "", "unreadable", problem)
