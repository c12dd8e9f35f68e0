"""Characters of a PDF page with their places, by PDFium: runs of text that somebody sees, each on one line."""

from __future__ import annotations

import ctypes
import math
import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pypdfium2 as pdfium
import pypdfium2.raw as raw

from ondevice.documents.formats.pdf_seen import Box, unseen

MOST_CHARS = 200_000  # no real page of text has as many
ASKEW = 4  # a direction beside the four right angles
_STRAIGHT = math.radians(10)  # a scan is never quite straight
_SMALLEST = 1.0  # points: what is smaller is seen by nobody
_PALEST, _FAINTEST = 235, 24  # of 255: colours near to that of paper, and a strength that is seen
_HEAVY = re.compile(r"bold|black|heavy|medi\b|cmbx", re.IGNORECASE)
_FILLED = (raw.FPDF_TEXTRENDERMODE_FILL, raw.FPDF_TEXTRENDERMODE_FILL_CLIP)
_INVISIBLE = (raw.FPDF_TEXTRENDERMODE_INVISIBLE, raw.FPDF_TEXTRENDERMODE_CLIP)


@dataclass(slots=True)
class Run:
    """Characters of one line, in the order of the file.

    Places are in the frame of the run's direction, in points: `left` and `right` along it, `base` across it, upwards.

    Attributes:
        turn: quarter turns of its direction, anticlockwise; `ASKEW` for others.
        glyphs: (text, left, right) of each.
        low, high: edges of the first one across the line.
        veil: why it may be unseen: `invisible` by itself, or `pale`.
        handle: its text object in PDFium.
    """

    turn: int
    base: float
    size: float
    glyphs: list[tuple[str, float, float]]
    low: float
    high: float
    veil: str = ""
    handle: Any = None

    @property
    def left(self) -> float:
        return min(self.glyphs[0][1], self.glyphs[-1][1])

    @property
    def right(self) -> float:
        return max(self.glyphs[0][2], self.glyphs[-1][2])

    @property
    def end(self) -> float:
        """Its right edge without a blank there: in fonts that are not in the file half of a sign may be read as one."""
        last = self.glyphs[-2] if len(self.glyphs) > 1 and self.glyphs[-1][0] == " " else self.glyphs[-1]
        return max(self.glyphs[0][2], last[2])

    @property
    def text(self) -> str:
        return "".join([glyph[0] for glyph in self.glyphs])

    @property
    def box(self) -> Box:
        """Left, bottom, right and top on the page."""
        return in_frame((self.left, self.low, self.right, self.high), -self.turn % 4)


def in_frame(box: Box, turn: int) -> Box:
    """A box of the page in the frame of a direction."""
    left, bottom, right, top = box
    turned = box, (bottom, -right, top, -left), (-right, -top, -left, -bottom), (-top, left, -bottom, right), box
    return turned[turn]


def read_glyphs(page: pdfium.PdfPage, has_layers: bool, name: Callable[[str, int], str]) -> tuple[list[Run], list[str]]:
    """All text of a page that is seen, and sentences on what was left out.

    Args:
        has_layers: some layers of the document are off, so that any text may be hidden.
        name: the text of a code that PDFium does not know, by the name of its font; "" if nobody knows it.
    """
    letters = page.get_textpage()
    text, num_chars = letters.raw, letters.count_chars()
    code_of, object_of, has_error = raw.FPDFText_GetUnicode, raw.FPDFText_GetTextObject, raw.FPDFText_HasUnicodeMapError
    (x0, y0, x1, y1), rect, runs, style, address = page.get_bbox(), raw.FS_RECTF(), list[Run](), None, b""
    run, last, begin, end, has_far, blank = None, None, 0.0, 0.0, False, list[tuple[str, float, float]]()
    for index in range(min(num_chars, MOST_CHARS)):
        code, handle = code_of(text, index), object_of(text, index)
        if not handle:  # made up: a space or a line end
            if run is not None and run.turn == ASKEW:
                run.glyphs.append((" ", 0.0, 0.0))
            continue
        raw.FPDFText_GetLooseCharBox(text, index, rect)
        box = (rect.left, rect.bottom, rect.right, rect.top)
        is_made_up = code == 32 and box[1] == box[3]  # a blank without a height, which tells of no base
        if style is None or bytes(handle) != address:
            style = _style(text, index, handle, box)
            if is_made_up:
                blank, style = [(" ", *in_frame(box, style.turn)[::2])], None
                continue
            address, run, last = bytes(handle), None, None
        if style.size < _SMALLEST or box[0] > x1 or box[2] < x0 or box[1] > y1 or box[3] < y0:
            has_far = has_far or code != 32
            continue
        character = chr(code) if code < 0x110000 else "\ufffd"
        if code < 32 or has_error(text, index):
            character = "-" if raw.FPDFText_IsHyphen(text, index) else name(_font(handle), code) or character
            character = character if character >= " " else " " if character.isspace() else "\ufffd"
        left, low, right, high = in_frame(box, style.turn) if style.turn else box
        if run is not None and box == last:  # one glyph for several characters; PDFium turns lam and alef
            known = run.glyphs[-1][0]
            is_turned = character == "\u0644" and known in "\u0622\u0623\u0625\u0627"
            run.glyphs[-1] = (character + known if is_turned else known + character, left, right)
        elif run is not None and (
            style.turn == ASKEW
            or (left - end < run.size and begin - right < run.size and abs(low - run.low) < 0.5 * run.size)
        ):
            run.glyphs += [*blank, (character, left, right)]
        elif is_made_up:
            blank = [(" ", left, right)]
            continue
        else:
            glyphs = [*blank, (character, left, right)]
            run = Run(style.turn, low - style.base, style.size, glyphs, low, high, style.veil, handle)
            runs.append(run)
        begin, end, last, blank = left, right, box, []
    hidden, is_unsure = unseen(page, runs, has_layers)
    notes = {
        "it holds text that nobody sees on it, left out here": has_far or hidden,
        "it may hold text that nobody sees on it: it is too complex to look": is_unsure,
        "it holds more characters than any real page; the rest was left out": num_chars > MOST_CHARS,
    }
    return upright([one for one in runs if id(one) not in hidden]), [note for note, is_so in notes.items() if is_so]


def _style(text: Any, index: int, handle: Any, box: Box) -> Run:
    """An empty run with what all characters of a text object share; its base is that below the box of the first."""
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
    is_pale = is_filled and (min(red.value, green.value, blue.value) >= _PALEST or alpha.value < _FAINTEST)
    below = in_frame(box, turn)[1] - in_frame((x.value, y.value, x.value, y.value), turn)[1]
    return Run(turn, below, size, [], 0.0, 0.0, "invisible" if mode in _INVISIBLE else "pale" if is_pale else "")


def _font(handle: Any) -> str:
    font, name = raw.FPDFTextObj_GetFont(handle), ctypes.create_string_buffer(200)
    raw.FPDFFont_GetBaseFontName(font, name, len(name))
    return name.value.decode("utf-8", "replace")


def is_bold(run: Run) -> bool:
    """True if the letters of a run are heavy, as the name of their font says."""
    return run.handle is not None and _HEAVY.search(_font(run.handle)) is not None


def upright(runs: list[Run]) -> list[Run]:
    """Signs of East Asian scripts that stand one below the other are one run downwards."""
    columns: list[list[Run]] = []
    for run in runs:
        if columns and _stands_below(columns[-1][-1], run):
            columns[-1].append(run)
        else:
            columns.append([run])
    return [column[0] if len(column) == 1 else _downwards(column) for column in columns]


def _stands_below(run: Run, after: Run) -> bool:
    are_signs = all(
        one.turn == 0 and len(sign := one.text.strip(" ")) == 1 and unicodedata.east_asian_width(sign) in "WF"
        for one in (run, after)
    )
    is_above = min(run.right, after.right) - max(run.left, after.left) > 0.3 * run.size  # marks stand beside the middle
    return are_signs and is_above and 0.5 < (run.base - after.base) / run.size < 1.3


def _downwards(signs: list[Run]) -> Run:
    left, right = min(sign.left for sign in signs), max(sign.right for sign in signs)
    glyphs = [(sign.text.strip(" "), -sign.high, -sign.low) for sign in signs]
    return Run(3, left, signs[0].size, glyphs, left, right)
