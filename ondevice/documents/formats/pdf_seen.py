"""Text of a PDF page that nobody sees: the page is drawn with it and without it."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Protocol

import pypdfium2 as pdfium
import pypdfium2.raw as raw
from PIL import Image, ImageChops

_MOST_OBJECTS, _SIDE = 20_000, 600  # of a page that is drawn: objects, pixels
_FAINTEST = 24  # of 255: a difference that is seen

Box = tuple[float, float, float, float]


class Drawn(Protocol):
    """A text on the page: why it may be unseen (`invisible` by itself, `pale`, or ""), its object in PDFium."""

    veil: str
    handle: Any

    @property
    def box(self) -> Box: ...


def unseen(page: pdfium.PdfPage, runs: Sequence[Drawn], has_layers: bool) -> tuple[set[int], bool]:
    """Ids of the runs that nobody sees on the drawn page; True if it could not be looked at.

    What is drawn alike without a text does not show it. Text that is invisible by itself counts as seen where it lies
    on something that is drawn: so the text of scanned pages is kept.
    """
    veiled = [run for run in runs if run.veil == "invisible"]
    pale = [run for run in runs if run.veil == "pale" or (has_layers and not run.veil)]
    if veiled:  # most often the text of a scanned page: then nothing needs to be drawn
        images = [one.get_bounds() for one in page.get_objects(filter=(raw.FPDF_PAGEOBJ_IMAGE,), max_depth=1)]
        veiled = [run for run in veiled if not any(_touches(run.box, image) for image in images)]
    if not veiled and not pale:
        return set(), False
    if raw.FPDFPage_CountObjects(page) > _MOST_OBJECTS:
        return set(), True
    hidden = {id(run) for run in _without_trace(page, pale, runs)} if pale else set()
    if veiled:
        paper = _drawn_without(page, [run.handle for run in runs])
        shades = [(run, _shades(page, paper, run.box)) for run in veiled]
        hidden |= {id(run) for run, (darkest, lightest) in shades if lightest - darkest < _FAINTEST}
    return hidden, False


def _without_trace(page: pdfium.PdfPage, pale: list[Drawn], runs: Sequence[Drawn]) -> list[Drawn]:
    """Those without which the page looks the same, also where what is drawn again in their places is left out."""
    whole, again = _drawn_without(page, []), list[Any]()
    while True:
        change = ImageChops.difference(whole, _drawn_without(page, [*(run.handle for run in pale), *again]))
        pale = [run for run in pale if _shades(page, change, run.box)[1] < _FAINTEST]
        if again or not (again := _drawn_again(page, pale, runs)):
            return pale


def _drawn_again(page: pdfium.PdfPage, hidden: Sequence[Drawn], runs: Sequence[Drawn]) -> list[Any]:
    """Text objects in the places of hidden runs that are none: PDFium passes over what is drawn a second time."""
    bounds, known = {_bounds(run.handle) for run in hidden}, {bytes(run.handle) for run in runs}
    texts = [one.raw for one in page.get_objects(filter=(raw.FPDF_PAGEOBJ_TEXT,), max_depth=15)] if hidden else []
    return [one for one in texts if bytes(one) not in known and _bounds(one) in bounds]


def _bounds(handle: Any) -> tuple[int, ...]:
    sides = [ctypes.c_float() for _ in range(4)]
    raw.FPDFPageObj_GetBounds(handle, *sides)
    return tuple(round(side.value) for side in sides)


def _drawn_without(page: pdfium.PdfPage, handles: list[Any]) -> Image.Image:
    """The page in grey, small, without these objects."""
    for handle in handles:
        raw.FPDFPageObj_SetIsActive(handle, False)
    picture = page.render(scale=_SIDE / max(*page.get_size(), 1.0), grayscale=True, may_draw_forms=False).to_pil()
    for handle in handles:
        raw.FPDFPageObj_SetIsActive(handle, True)
    return picture


def _shades(page: pdfium.PdfPage, picture: Image.Image, box: Box) -> tuple[int, int]:
    """The darkest and the lightest point of the picture in a box of the page."""
    position = pdfium.PdfPosConv(page, (0, 0, picture.width, picture.height, 0))
    (a, b), (c, d) = position.to_bitmap(box[0], box[1]), position.to_bitmap(box[2], box[3])
    left, top, right, bottom = max(0, min(a, c)), max(0, min(b, d)), max(a, c) + 1, max(b, d) + 1
    within = left, top, min(picture.width, right), min(picture.height, bottom)
    if left >= within[2] or top >= within[3]:
        return 0, 0
    shades: Any = picture.crop(within).getextrema()
    return shades  # type: ignore[no-any-return]


def _touches(box: Box, other: Box) -> bool:
    return box[0] <= other[2] and box[2] >= other[0] and box[1] <= other[3] and box[3] >= other[1]
