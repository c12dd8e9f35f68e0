"""Pictures (PNG, JPEG, TIFF) and scanned pages of a PDF: their words by OCR, where the extra `ocr` is installed."""

from __future__ import annotations

import base64
import io
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import Any

from ondevice.documents.formats.normalize import normalize
from ondevice.documents.formats.plain import read_blocks
from ondevice.documents.formats.reader import Reader, Request
from ondevice.documents.formats.table import BY_SUFFIX
from ondevice.documents.types import Page
from ondevice.errors import DocumentError, UnsupportedDocument

_MAX_THREADS = 4  # each takes address space, of which the sandbox leaves 3 GB
_MOST_PIXELS = 4_000_000  # A4 at 200 dots an inch; larger pictures are made smaller
_MAY_HOLD, _NAME = ("zip", "eml"), re.compile(rb"\.(?:png|jpe?g|tiff?)", re.IGNORECASE)


def prepare(request: Request) -> bool:
    """Load the models if the document may need them: they start threads, and no more are allowed in the sandbox."""
    kind = BY_SUFFIX[request.suffix].kind if request.suffix in BY_SUFFIX else ""
    if kind in _MAY_HOLD:  # the names of what is inside are not packed
        kind = "image" if any(map(_NAME.search, read_blocks(request))) else kind
    if kind != "image" and not request.scans:
        return False
    try:
        _engine()
    except (ImportError, RuntimeError):  # the second of its models or its runtime; `open_picture` says it
        return False
    return True


def open_picture(request: Request) -> Reader:
    """The picture, or each of those in a file of several."""
    try:
        engine = _engine()
    except (ImportError, RuntimeError) as error:
        from ondevice.extras import install_extra

        what = "this is a picture, whose words only OCR can read"
        fix = f"{install_extra('ocr')} Or run OCR first (for example ocrmypdf), then open the result."
        raise UnsupportedDocument(what, where=request.name, fix=fix) from error
    return Reader("image", "page", _pages(request.read(), engine))


def _pages(data: bytes, engine: Any) -> Iterator[Page]:
    from PIL import Image

    with Image.open(io.BytesIO(data)) as picture:
        for number in range(getattr(picture, "n_frames", 1)):
            picture.seek(number)
            scale = (_MOST_PIXELS / (picture.width * picture.height)) ** 0.5
            if scale >= 1:
                yield _page(number + 1, engine.scan(data, pages=[number]))
                continue
            shown = picture.convert("RGBA").resize((int(picture.width * scale) or 1, int(picture.height * scale) or 1))
            paper = Image.new("RGB", shown.size, "white")
            paper.paste(shown, mask=shown)
            yield _page(number + 1, engine.scan(paper))


def open_scans(request: Request) -> Reader:
    """The pages `request.scans` of a PDF, in this order, from the pictures that are drawn of them."""
    return Reader("pdf", "page", _scans(request, _engine()))


def _scans(request: Request, engine: Any) -> Iterator[Page]:
    from ondevice.documents.formats.pdf_picture import draw_pages

    for number in request.scans:
        with suppress(DocumentError):  # what cannot be drawn stays a scan
            image = next(draw_pages(replace(request, draw=number)))["image"]
            if (page := _page(number, engine.scan(base64.b64decode(image)))).text:
                yield page


def _page(number: int, found: Any) -> Page:
    if text := normalize(found.text).replace("\f", "\n"):
        how = f"the words of page {number} were read from a picture (OCR, {found.confidence:.0%} sure)"
        return Page(number, text + "\n", "recognised", how)
    return Page(number, "", "scan", f"page {number} is a picture without words")


@cache
def _engine() -> Any:
    # Imported here: few documents need them.
    from ocrust import Ocr
    from PIL import Image, ImageDraw

    threads = min(os.cpu_count() or 1, _MAX_THREADS)
    os.environ["RAYON_NUM_THREADS"] = str(threads)  # for what it does beside the models
    engine = Ocr(threads=threads, page_workers=1)
    picture, data = Image.new("L", (240, 60), 255), io.BytesIO()
    ImageDraw.Draw(picture).text((20, 20), "some words to begin with", fill=0)
    picture.save(data, "PNG")
    engine.scan(data.getvalue())  # starts its threads
    return engine
