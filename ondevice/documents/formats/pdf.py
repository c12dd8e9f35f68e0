"""PDF files: opened by PDFium for their letters and by pypdf for what stands beside them; limits, passwords, repair."""

from __future__ import annotations

import contextlib
import logging
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from io import BytesIO
from typing import Any, BinaryIO

import pypdf
import pypdfium2 as pdfium
import pypdfium2.raw as raw
from pypdf import PdfReader, PdfWriter

from ondevice.documents.formats.pdf_beside import attachment_lines, xfa_lines
from ondevice.documents.formats.pdf_layout import title_words
from ondevice.documents.formats.pdf_page import OpenPdf, read_page
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
_OBJECT = re.compile(rb"(\d{1,10})\s+(\d{1,5})\s+obj\b")
_CATALOG = re.compile(_OBJECT.pattern + rb"(?:(?!endobj).){0,2000}?/Type\s*/Catalog\b", re.DOTALL)
_RESAVE_FIX = "Print it to a new PDF from a viewer that shows it, then open that."


def open_pdf(request: Request) -> Reader:
    """Open the file, with the empty password or the one given."""
    # A context variable, set for the whole life of the worker.
    pypdf.overwrite_configuration(**_CONFIGURATION)
    logging.getLogger("pypdf").propagate = False  # its warnings quote the file
    letters, source = _open(request)
    structure = _structure(source, request)
    num_pages = len(letters)
    if num_pages == 0:
        raise DocumentError("no page was found in it; the file is damaged", where=request.name, fix=_RESAVE_FIX)
    if num_pages > _CONFIGURATION["page_tree_maximum_entries"]:
        raise DocumentTooComplex("its page tree is too large", where=request.name, fix=_RESAVE_FIX)
    pdf = OpenPdf(letters, structure, structure is not None and _has_layers(structure), _titles(letters))
    return Reader("pdf", "page", _pages(pdf, request.first), num_pages)


def _open(request: Request) -> tuple[pdfium.PdfDocument, BinaryIO]:
    """The file in PDFium, and what it was opened from: a mended copy where PDFium does not take it as it is."""
    try:
        return open_letters(source := request.open(), request), source
    except DocumentError:
        for mend in (_with_new_end, _written_anew):
            with contextlib.suppress(Exception):
                mended = mend(request)
                if mended is not None:
                    return open_letters(mended, request), mended
        raise


def _with_new_end(request: Request) -> BytesIO | None:
    """A file that was cut off, with a trailer for the catalog that it holds; None when there is none to be seen."""
    data = request.read()
    catalogs = list(_CATALOG.finditer(data))
    if not catalogs:
        return None
    catalog = catalogs[-1]  # a file may hold older versions of itself; the last one counts
    size = 1 + max(int(found[1]) for found in _OBJECT.finditer(data))
    end = b"\nendobj\ntrailer\n<< /Root %s %s R /Size %d >>\nstartxref\n0\n%%%%EOF\n" % (catalog[1], catalog[2], size)
    return BytesIO(data + end)


def _written_anew(request: Request) -> BytesIO | None:
    """The file as pypdf understands it."""
    reader = _structure(request.open(), request)
    if reader is None:
        return None
    copy = BytesIO()
    PdfWriter(clone_from=reader).write(copy)
    return copy


def open_letters(source: BinaryIO, request: Request, to_be: str = "read") -> pdfium.PdfDocument:
    """The file in PDFium, with the empty password (most only forbid printing) or that given; raises DocumentError."""
    try:
        return pdfium.PdfDocument(source, password=request.password)
    except pdfium.PdfiumError as error:
        if error.err_code == raw.FPDF_ERR_SECURITY:
            what = "its kind of encryption is not known here"
            raise UnsupportedDocument(what, where=request.name, fix=_RESAVE_FIX) from error
        if error.err_code != raw.FPDF_ERR_PASSWORD:
            what = f"the file is too damaged to be {to_be}"
            raise DocumentError(what, where=request.name, fix=_RESAVE_FIX) from error
        if request.password is None:
            what, fix = "the file is encrypted", "Give the password that opens it."
            raise PasswordRequired(what, where=request.name, fix=fix) from error
        what = "the password does not open the file"
        raise WrongPassword(what, where=request.name, fix="Check it and try again.") from error


def _structure(source: BinaryIO, request: Request) -> PdfReader | None:
    with contextlib.suppress(Exception):
        reader = PdfReader(source, strict=False, root_object_recovery_limit=10_000, xref_stream_maximum_entries=500_000)
        if not reader.is_encrypted or reader.decrypt("") or reader.decrypt(request.password or ""):
            len(reader.pages)
            return reader
    return None


def _titles(letters: pdfium.PdfDocument) -> dict[int, dict[str, int]] | None:
    """The entries of the file's outline with their levels, by their words, for each page; None without any."""
    found: defaultdict[int, dict[str, int]] = defaultdict(dict)
    with contextlib.suppress(Exception):
        for mark in letters.get_toc():
            target = mark.get_dest()
            words = title_words(mark.get_title())
            if words and target is not None and (index := target.get_index()) is not None:
                found[index + 1].setdefault(words, mark.level + 1)
    return dict(found) or None


def _has_layers(reader: PdfReader) -> bool:
    """True if some layers are off."""
    with contextlib.suppress(Exception):
        shown: Any = reader.root_object["/OCProperties"]["/D"]  # type: ignore[index]
        return bool(shown.get("/OFF")) or shown.get("/BaseState") == "/OFF"
    return False


def _pages(pdf: OpenPdf, first: int) -> Iterator[Page]:
    for number in range(first, len(pdf.letters) + 1):
        page = read_page(pdf, number)
        label, more = "", list[str]()
        with contextlib.suppress(Exception):
            label = pdf.letters.get_page_label(number - 1)
        with contextlib.suppress(Exception):
            more += xfa_lines(pdf.structure) if number == 1 and pdf.structure is not None else []
        if number == len(pdf.letters):
            more += attachment_lines(pdf.letters)
        text = "".join([page.text, *(f"{line}\n" for line in more)])
        if text and label not in ("", str(number)):
            text = f"[Printed page {label}, PDF page {number}]\n{text}"
        yield replace(page, text=text)
