"""PDF files, by pypdf: opening, passwords, and for every page its text or the reason why there is none."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from io import BytesIO
from typing import Any

import pypdf
from pypdf import PageObject, PdfReader
from pypdf.errors import DependencyError, FileNotDecryptedError, LimitReachedError, PyPdfError
from pypdf.generic import ContentStream, NameObject, NullObject

from ondevice.documents.normalize import expand_ligatures, normalize
from ondevice.documents.pdf_content import TextContentStream
from ondevice.documents.pdf_marks import what_is_drawn
from ondevice.documents.pdf_repair import with_new_end
from ondevice.documents.reader import Reader, Request
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
# A page with an image and less text than this is a scan with a stamp or a label on it.
_FEW_LETTERS = 30
_RESAVE_FIX = "Print it to a new PDF from a viewer that shows it, then open that."


def open_pdf(request: Request) -> Reader:
    """Open the file, with the empty password or the one given."""
    # pypdf's warnings quote the file.
    logging.getLogger("pypdf").setLevel(logging.CRITICAL + 1)
    # A context variable, set for the whole life of the worker.
    pypdf.overwrite_configuration(**_CONFIGURATION)
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
    return Reader("pdf", "page", _pages(reader, request.first, num_pages), num_pages)


def _open(request: Request) -> PdfReader:
    try:
        return _open_stream(request.path, request)
    except LimitReachedError:
        raise
    except PyPdfError:
        repaired = with_new_end(request.path)
        if repaired is None:
            raise
        return _open_stream(repaired, request)


def _open_stream(source: str | BytesIO, request: Request) -> PdfReader:
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


def _pages(reader: PdfReader, first: int, num_pages: int) -> Iterator[Page]:
    for number in range(first, num_pages + 1):
        yield _read_page(reader, number)


def _read_page(reader: PdfReader, number: int) -> Page:
    """Any failure belongs to this page alone."""
    try:
        page = reader.pages[number - 1]
        text = expand_ligatures(normalize(_extract_text(page, reader).replace("\f", "\n"))).strip("\n")
        if text.strip():
            return _with_text(number, text + "\n", page)
        return _without_text(number, what_is_drawn(page))
    except LimitReachedError:
        return Page(number, "", "too-complex", f"page {number} was given up: it holds more drawing than any real page")
    except RecursionError:
        return Page(number, "", "too-complex", f"page {number} was given up: it is nested too deeply")
    except MemoryError:
        return Page(number, "", "too-complex", f"page {number} was given up: it takes more memory than is allowed")
    except FileNotDecryptedError:
        return Page(number, "", "unreadable", f"page {number} cannot be decrypted")
    except PyPdfError as error:
        return Page(number, "", "unreadable", f"page {number} is damaged [{type(error).__name__}]")
    except Exception as error:
        # pypdf meets damage with KeyError, AttributeError, AssertionError and others.
        return Page(number, "", "unreadable", f"page {number} is damaged [{type(error).__name__}]")


def _extract_text(page: PageObject, reader: PdfReader) -> str:
    contents = page.get("/Contents")
    contents = contents.get_object() if contents is not None else None
    if contents is not None and not isinstance(contents, NullObject | ContentStream):
        # extract_text takes a ready content stream as it is: here it gets the quick one.
        page[NameObject("/Contents")] = TextContentStream(contents, reader, "bytes")
    return page.extract_text()


def _with_text(number: int, text: str, page: PageObject) -> Page:
    letters = [character for character in text if not character.isspace()]
    num_lost = sum(character == "\ufffd" or "\ue000" <= character <= "\uf8ff" for character in letters)
    if 2 * num_lost > len(letters):
        return Page(number, text, "unreadable", f"most letters of page {number} have no meaning outside its own fonts")
    if len(letters) < _FEW_LETTERS and _has_image(page):
        problem = f"page {number} is an image with no more than {len(letters)} letters of text beside it"
        return Page(number, text, "scan", problem)
    return Page(number, text)


def _has_image(page: PageObject) -> bool:
    # Damage here must not cost the text that was found.
    try:
        return what_is_drawn(page) == "image"
    except Exception:
        return False


def _without_text(number: int, drawn: str) -> Page:
    match drawn:
        case "image":
            return Page(number, "", "scan", f"page {number} is an image without a text layer")
        case "text":
            return Page(number, "", "unreadable", f"page {number} has letters that its fonts give no meaning")
        case "graphics":
            return Page(number, "", "scan", f"page {number} is a drawing without a text layer")
    return Page(number, "", "blank", f"page {number} is blank")
