"""Pictures (PNG, JPEG, TIFF): their words by OCR, where the extra `ocr` is installed."""

from __future__ import annotations

import io
from collections.abc import Iterator
from functools import cache
from typing import Any

from ondevice.documents.formats.normalize import normalize
from ondevice.documents.formats.reader import Reader, Request
from ondevice.documents.formats.table import BY_SUFFIX
from ondevice.documents.types import Page
from ondevice.errors import UnsupportedDocument

_MAX_PIXELS = 100_000_000
_MAY_HOLD = ("image", "zip", "eml")  # kinds of documents with pictures to be read


def prepare(request: Request) -> bool:
    """Load the models if the document may need them: they start threads, and no more are allowed in the sandbox."""
    found = BY_SUFFIX.get(request.suffix)
    if found is None or found.kind not in _MAY_HOLD:
        return False
    try:
        _engine()
    except ImportError:
        return False
    return True


def open_picture(request: Request) -> Reader:
    """The picture, or each of those in a file of several."""
    try:
        engine = _engine()
    except ImportError as error:
        from ondevice.extras import install_extra

        what = "this is a picture, whose words only OCR can read"
        fix = f"{install_extra('ocr')} Or run OCR first (for example ocrmypdf), then open the result."
        raise UnsupportedDocument(what, where=request.name, fix=fix) from error
    from PIL import Image

    data = request.read()
    with Image.open(io.BytesIO(data)) as picture:
        num_pages = getattr(picture, "n_frames", 1)
    return Reader("image", "page", _pages(engine, data, num_pages))


def _pages(engine: Any, data: bytes, num_pages: int) -> Iterator[Page]:
    for number in range(1, num_pages + 1):
        found = engine.scan(data, pages=[number - 1])
        if text := normalize(found.text).replace("\f", "\n"):
            how = f"the words of page {number} were read from a picture (OCR, {found.confidence:.0%} sure)"
            yield Page(number, text + "\n", "recognised", how)
        else:
            yield Page(number, "", "scan", f"page {number} is a picture without words")


@cache
def _engine() -> Any:
    # Imported here: few documents need them.
    from ocrust import Ocr
    from PIL import Image, ImageDraw

    engine = Ocr(threads=1, page_workers=1, max_pixels=_MAX_PIXELS)
    picture, data = Image.new("L", (240, 60), 255), io.BytesIO()
    ImageDraw.Draw(picture).text((20, 20), "some words to begin with", fill=0)
    picture.save(data, "PNG")
    engine.scan(data.getvalue())  # starts its threads
    return engine
