"""Characters of a PDF page with their places, by PDFium: runs of text that somebody sees, each on one line."""

from __future__ import annotations

import ctypes
import math
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pypdfium2 as pdfium
import pypdfium2.raw as raw
from PIL import ImageChops

MOST_CHARS = 200_000  # no real page of text has as many
ASKEW = 4  # a direction beside the four right angles
_STRAIGHT = math.radians(10)  # a scan is never quite straight
_SMALLEST = 1.0  # points: what is smaller is seen by nobody
_NEAR = 0.12  # of the size: letters nearer than that are one, drawn twice for bold
_MOST_OBJECTS = 20_000  # of a page that is drawn to see whether its text is seen
_SIDE = 1000  # pixels of that
_PALEST, _FAINTEST = 235, 24  # of 255: shades near to that of paper, and a difference that is seen
_FILLED = (raw.FPDF_TEXTRENDERMODE_FILL, raw.FPDF_TEXTRENDERMODE_FILL_CLIP)
_INVISIBLE = (raw.FPDF_TEXTRENDERMODE_INVISIBLE, raw.FPDF_TEXTRENDERMODE_CLIP)

Glyph = tuple[str, float, float]
Box = tuple[float, float, float, float]


@dataclass(slots=True)
class Run:
    """Characters of one line, in the order of the file.

    Places are in the frame of the run's direction, in points: `left` and `right` along it, `base` across it, upwards.

    Attributes:
        turn: quarter turns of its direction, anticlockwise; `ASKEW` for others.
        glyphs: (text, left, right) of each.
        box: left, bottom, right, top on the page.
    """

    turn: int
    base: float
    size: float
    glyphs: list[Glyph]
    box: Box

    @property
    def left(self) -> float:
        return min(self.glyphs[0][1], self.glyphs[-1][1])

    @property
    def right(self) -> float:
        return max(self.glyphs[0][2], self.glyphs[-1][2])

    @property
    def text(self) -> str:
        return "".join(glyph[0] for glyph in self.glyphs)


@dataclass(slots=True)
class _Object:
    """A text object of PDFium: all that its characters share, and these with their boxes."""

    handle: Any
    turn: int
    base: float
    size: float
    is_invisible: bool
    is_pale: bool
    glyphs: list[tuple[str, Box]] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join([character for character, _ in self.glyphs])

    @property
    def box(self) -> Box:
        lefts, bottoms, rights, tops = zip(*(box for _, box in self.glyphs), strict=True)
        return min(lefts), min(bottoms), max(rights), max(tops)


@dataclass(slots=True)
class Glyphs:
    """The text of a page: what is seen of it, and how many characters are not, or could not be looked at."""

    runs: list[Run]
    num_hidden: int = 0
    num_unsure: int = 0
    is_cut: bool = False


def in_frame(box: Box, turn: int) -> Box:
    """A box of the page in the frame of a direction."""
    left, bottom, right, top = box
    turned = (left, bottom, right, top), (bottom, -right, top, -left), (-right, -top, -left, -bottom)
    return (*turned, (-top, left, -bottom, right), turned[0])[turn]


def read_glyphs(page: pdfium.PdfPage, has_layers: bool, name: Callable[[str, int], str]) -> Glyphs:
    """All text of a page.

    Args:
        has_layers: some layers of the document are off, so that any text may be hidden.
        name: the text of a code that PDFium does not know, by the name of its font; "" if nobody knows it.
    """
    letters = page.get_textpage()
    text, num_chars = letters.raw, letters.count_chars()
    code_of, object_of, has_error = raw.FPDFText_GetUnicode, raw.FPDFText_GetTextObject, raw.FPDFText_HasUnicodeMapError
    rect, objects, address, box = raw.FS_RECTF(), list[_Object](), b"", None
    for index in range(min(num_chars, MOST_CHARS)):
        code, handle = code_of(text, index), object_of(text, index)
        if not handle:  # made up: a space or a line end
            if objects and objects[-1].turn == ASKEW:
                objects[-1].glyphs.append((" ", (0.0, 0.0, 0.0, 0.0)))
            continue
        raw.FPDFText_GetLooseCharBox(text, index, rect)
        last, box = box, (rect.left, rect.bottom, rect.right, rect.top)
        if bytes(handle) != address:
            address, last = bytes(handle), None
            objects.append(_object(text, index, handle, box))
        character = chr(code) if code < 0x110000 else "\ufffd"
        if code < 32 or has_error(text, index):
            character = "-" if raw.FPDFText_IsHyphen(text, index) else name(_font(handle), code) or character
            character = character if character >= " " else "\ufffd"
        glyphs = objects[-1].glyphs
        if box == last and glyphs:  # one glyph for several characters
            glyphs[-1] = (glyphs[-1][0] + character, box)
        else:
            glyphs.append((character, box))
    found = Glyphs([], is_cut=num_chars > MOST_CHARS)
    objects = _once(objects)
    found.num_hidden = _leave_out_far(objects, page.get_bbox())
    hidden, unsure = _unseen(page, objects, has_layers)
    found.num_hidden += sum(_count(objects[index].text) for index in hidden)
    found.num_unsure = sum(_count(objects[index].text) for index in unsure)
    seen = [one for index, one in enumerate(objects) if index not in hidden]
    found.runs = _upright([run for one in seen if one.glyphs for run in _runs(one)])
    return found


def _count(text: str) -> int:
    return sum(not character.isspace() for character in text)


def _object(text: Any, index: int, handle: Any, box: Box) -> _Object:
    matrix, x, y = raw.FS_MATRIX(), ctypes.c_double(), ctypes.c_double()
    raw.FPDFText_GetMatrix(text, index, matrix)
    raw.FPDFText_GetCharOrigin(text, index, x, y)
    size = raw.FPDFText_GetFontSize(text, index)
    angle = math.atan2(matrix.b * size, matrix.a * size)
    quarter = round(angle / (math.pi / 2))
    turn = quarter % 4 if abs(angle - quarter * math.pi / 2) < _STRAIGHT else ASKEW
    size, height = abs(size) * math.hypot(matrix.c, matrix.d), box[3] - box[1]
    if turn in (0, 2) and height > 5 * size:  # fonts that are drawn have a measure of their own
        size = height
    mode = raw.FPDFTextObj_GetTextRenderMode(handle)
    red, green, blue, alpha = (ctypes.c_uint() for _ in range(4))
    is_filled = mode in _FILLED and raw.FPDFPageObj_GetFillColor(handle, red, green, blue, alpha)
    is_pale = bool(is_filled) and (min(red.value, green.value, blue.value) >= _PALEST or alpha.value < _FAINTEST)
    base = in_frame((x.value, y.value, x.value, y.value), turn)[1]
    return _Object(handle, turn, base, size, mode in _INVISIBLE, is_pale)


def _font(handle: Any) -> str:
    font, name = raw.FPDFTextObj_GetFont(handle), ctypes.create_string_buffer(200)
    raw.FPDFFont_GetBaseFontName(font, name, len(name))
    return name.value.decode("utf-8", "replace")


def _once(objects: list[_Object]) -> list[_Object]:
    """The objects without those that were drawn before at nearly the same place: so some programs print bold."""
    drawn: dict[tuple[str, int, int], tuple[float, float]] = {}
    kept, aside = [], (-1, 0, 1)
    for one in objects:
        text = one.text
        if text.isspace() or not text:
            kept.append(one)
            continue
        near = _NEAR * one.size or 1.0
        x, y = one.glyphs[0][1][:2]
        column, row = round(x / near), round(y / near)
        places = [drawn.get((text, column + i, row + j)) for i in aside for j in aside]
        if not any(place and abs(place[0] - x) < near and abs(place[1] - y) < near for place in places):
            drawn[text, column, row] = (x, y)
            kept.append(one)
    return kept


def _leave_out_far(objects: list[_Object], paper: Box) -> int:
    """Take out what lies outside the page or is too small to be seen; returns how many characters that are."""
    left, bottom, right, top = paper
    num_hidden = 0
    for one in objects:
        far = one.size < _SMALLEST
        if far or any(box[2] < left or box[0] > right or box[3] < bottom or box[1] > top for _, box in one.glyphs):
            kept = [
                (text, box)
                for text, box in one.glyphs
                if not far and box[2] >= left and box[0] <= right and box[3] >= bottom and box[1] <= top
            ]
            num_hidden += _count(one.text) - _count("".join(text for text, _ in kept))
            one.glyphs = kept
    return num_hidden


def _runs(one: _Object) -> list[Run]:
    """The characters of an object, parted where they do not go on along the line."""
    runs: list[Run] = []
    turn, size, first = one.turn, one.size, in_frame(one.glyphs[0][1], one.turn)[1]
    for character, box in one.glyphs:
        left, low, right, _ = in_frame(box, turn) if turn else box
        base = one.base + low - first
        if runs:
            run = runs[-1]
            _, begin, end = run.glyphs[-1]
            is_near = left - end < size and begin - right < size and abs(base - run.base) < 0.5 * size
            if is_near or turn == ASKEW:
                run.glyphs.append((character, left, right))
                a, b, c, d = run.box
                run.box = (min(a, box[0]), min(b, box[1]), max(c, box[2]), max(d, box[3]))
                continue
        runs.append(Run(turn, base, size, [(character, left, right)], box))
    return runs


def _upright(runs: list[Run]) -> list[Run]:
    """Signs of East Asian scripts that stand one below the other are one run downwards."""
    kept: list[Run] = []
    below: tuple[float, float] | None = None  # left and base of the sign that was last put into such a run
    for run in runs:
        text = run.glyphs[0][0]
        if run.turn != 0 or len(run.glyphs) > 1 or unicodedata.east_asian_width(text[0]) not in "WF":
            below = None
            kept.append(run)
            continue
        left, bottom, right, top = run.box
        if below and abs(below[0] - left) < 0.3 * run.size and 0.7 < (below[1] - run.base) / run.size < 1.3:
            column = kept[-1]
            if column.turn == 0:
                first = column.box
                column.glyphs = [(column.glyphs[0][0], -first[3], -first[1])]
                column.turn, column.base = 3, first[0]
            column.glyphs.append((text, -top, -bottom))
            column.box = (column.box[0], bottom, column.box[2], column.box[3])
        else:
            kept.append(run)
        below = left, run.base
    return kept


def _unseen(page: pdfium.PdfPage, objects: list[_Object], has_layers: bool) -> tuple[list[int], list[int]]:
    """Indices of the objects that nobody sees on the drawn page, and of those that could not be looked at.

    What is drawn alike without an object does not show it. Text that is invisible by itself counts as seen where it
    lies on something that is drawn: so the text of scanned pages is kept.
    """
    veiled = [i for i, one in enumerate(objects) if one.is_invisible and one.glyphs]
    pale = [i for i, one in enumerate(objects) if (one.is_pale or has_layers) and one.glyphs and not one.is_invisible]
    if veiled:  # most often the text of a scanned page: then nothing needs to be drawn
        images = [one.get_bounds() for one in page.get_objects(filter=(raw.FPDF_PAGEOBJ_IMAGE,), max_depth=1)]
        veiled = [i for i in veiled if not any(_is_in(objects[i].box, image) for image in images)]
    if not veiled and not pale:
        return [], []
    if raw.FPDFPage_CountObjects(page) > _MOST_OBJECTS:
        return [], veiled + pale
    hidden = []
    paper = _Paper(page)
    if pale:
        whole = paper.draw()
        _switch(objects, pale, False)
        difference = ImageChops.difference(whole, paper.draw())
        _switch(objects, pale, True)
        hidden += [i for i in pale if paper.shades(difference, objects[i].box)[1] < _FAINTEST]
    if veiled:
        _switch(objects, range(len(objects)), False)
        bare = paper.draw()
        for i in veiled:
            darkest, lightest = paper.shades(bare, objects[i].box)
            if lightest - darkest < _FAINTEST:
                hidden.append(i)
    return hidden, []


def _is_in(box: Box, other: Box) -> bool:
    x, y = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
    return other[0] <= x <= other[2] and other[1] <= y <= other[3]


def _switch(objects: list[_Object], which: Any, is_active: bool) -> None:
    for index in which:
        raw.FPDFPageObj_SetIsActive(objects[index].handle, is_active)


class _Paper:
    """The page in grey, small, and boxes of text on it."""

    def __init__(self, page: pdfium.PdfPage) -> None:
        self._page, self._scale = page, _SIDE / max(*page.get_size(), 1.0)

    def draw(self) -> Any:
        return self._page.render(scale=self._scale, grayscale=True, may_draw_forms=False).to_pil()

    def shades(self, picture: Any, box: Box) -> tuple[int, int]:
        """The darkest and the lightest point of the picture in a box."""
        position = pdfium.PdfPosConv(self._page, (0, 0, picture.width, picture.height, 0))
        (a, b), (c, d) = position.to_bitmap(box[0], box[1]), position.to_bitmap(box[2], box[3])
        left, top, right, bottom = max(0, min(a, c)), max(0, min(b, d)), max(a, c) + 1, max(b, d) + 1
        within = left, top, min(picture.width, right), min(picture.height, bottom)
        is_outside = within[0] >= within[2] or within[1] >= within[3]
        return (0, 0) if is_outside else picture.crop(within).getextrema()
