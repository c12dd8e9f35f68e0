"""One page of a PDF as a picture, with the place of every letter on it, by PDFium; in the limited child process."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from typing import Any

import pypdfium2 as pdfium
import pypdfium2.raw as raw

from ondevice.documents.formats.pdf import open_letters
from ondevice.documents.formats.reader import PICTURE_FIX, Request
from ondevice.errors import DocumentError

MOST_PIXELS = 2_000_000  # A4 at 136 dots an inch: sharp on the screen, and some 200 kB
MOST_CHARS = 50_000  # whose places are told; no real page of text has as many
UNITS = 10_000  # places are told in shares of the page's width and height, of so many
_LONGEST_SIDE = 8_000
_QUALITY, _EFFORT = 82, 2  # of WebP


def draw_pages(request: Request) -> Iterator[dict[str, Any]]:
    """A message for each page to draw: its picture, its text, and four numbers for each character of that.

    The text is PDFium's, in PDFium's order; characters without a place have the numbers 0, 0, 0, 0. Small pictures have
    no text: telling it takes longer than drawing them.

    Raises:
        DocumentError: the page whose turn it is cannot be drawn.
    """
    document = open_letters(request.open(), request, "drawn")
    if request.draw > len(document):
        raise DocumentError(f"page {request.draw} is missing from the file", where=request.name, fix=PICTURE_FIX)
    for number in (request.draw, *(number for number in request.beside if number <= len(document))):
        yield _drawn(document, number, request)


def _drawn(document: pdfium.PdfDocument, number: int, request: Request) -> dict[str, Any]:
    try:
        page = document[number - 1]
    except pdfium.PdfiumError as error:
        what = f"page {number} is too damaged to be drawn"
        raise DocumentError(what, where=request.name, fix=PICTURE_FIX) from error
    width, height = page.get_size()
    if not (width > 0 and height > 0):
        raise DocumentError(f"page {number} has no size", where=request.name, fix=PICTURE_FIX)
    scale = min((MOST_PIXELS / (width * height)) ** 0.5, _LONGEST_SIDE / max(width, height))
    if request.width:
        scale = min(scale, request.width / width)
    picture = page.render(scale=scale, limit_image_cache=True, may_draw_forms=False).to_pil()
    packed = io.BytesIO()
    picture.save(packed, "WEBP", quality=_QUALITY, method=_EFFORT)
    text, places = ("", []) if request.width else _text(page)
    return {
        "type": "picture",
        "width": picture.width,
        "height": picture.height,
        "image": base64.b64encode(packed.getvalue()).decode("ascii"),
        "text": text,
        "places": places,
    }


def _text(page: pdfium.PdfPage) -> tuple[str, list[int]]:
    letters = page.get_textpage()
    position = pdfium.PdfPosConv(page, (0, 0, UNITS, UNITS, 0))
    text, places = [], []
    for index in range(min(letters.count_chars(), MOST_CHARS)):
        code = raw.FPDFText_GetUnicode(letters, index)  # half a character becomes U+FFFD: there is one for each place
        text.append(chr(code) if 0 < code < 0x110000 and not 0xD800 <= code < 0xE000 else "\ufffd")
        places += _place(letters, index, position)
    return "".join(text), places


def _place(letters: pdfium.PdfTextPage, index: int, position: Any) -> list[int]:
    try:
        left, bottom, right, top = letters.get_charbox(index, loose=True)
        corners = [position.to_bitmap(x, y) for x, y in ((left, bottom), (right, top))]
    except (pdfium.PdfiumError, OverflowError, ValueError):  # a line end that PDFium has made up has no place
        return [0, 0, 0, 0]
    (a, b), (c, d) = corners
    return [max(0, min(UNITS, share)) for share in (min(a, c), min(b, d), max(a, c), max(b, d))]
