"""One page of a PDF: its text, or the reason why there is none or only a part of it."""

from __future__ import annotations

import contextlib
import math
import re
import unicodedata
import zlib
from collections import Counter
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Literal

import pypdfium2 as pdfium
import pypdfium2.raw as raw
from pypdf import PageObject, PdfReader
from pypdf.generic import ArrayObject, NullObject, StreamObject

from ondevice.documents.formats.normalize import normalize
from ondevice.documents.formats.pdf_beside import Beside, figure_lines, link_lines, read_annotations
from ondevice.documents.formats.pdf_glyphs import read_glyphs
from ondevice.documents.formats.pdf_layout import Memory, lay_out
from ondevice.documents.formats.pdf_rules import Grid, grids_on
from ondevice.documents.types import Page

MOST_BYTES = 20_000_000  # of the unpacked content of a page
_FEW_LETTERS = 30  # a page with an image and less text than this is a scan with a stamp or a label on it
_MOST_LOST = 0.02  # of the letters: fewer are single signs, which are seen as such
_FEW_WORDS, _MOST_MIXED = 8, 0.4  # words that mix scripts: only letters taken wrongly do
_FEW_LATIN = 60
_WORD = re.compile(r"[^\W\d_]+")
# Letters of the languages of Europe and their shares in percent, roughly; a text that is less like them is none.
_BY_FREQUENCY = "eaitnorsldumcpghvbfkzywjxq"
_FREQUENCIES = (13, 9, 8, 7, 7, 7, 7, 6, 5, 4, 4, 3, 3, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 0.5, 0.3, 0.2)
_LEAST_LIKE = 0.65
_UNI = re.compile(r"uni((?:[0-9A-F]{4})+)")
# Signs that take no room, and what Adobe's fonts have at places of their own: old figures and small capitals.
# Ligatures, one glyph of a PDF, are several letters to a reader.
_SIGNS: dict[int, int | str | None] = dict.fromkeys((0xAD, 0x200B, 0x2060))
_SIGNS |= enumerate(("ff", "fi", "fl", "ffi", "ffl", "st", "st"), 0xFB00)
_SIGNS |= {0xF730 + i: 0x30 + i for i in range(10)} | {0xF761 + i: 0x61 + i for i in range(26)}
# Cyrillic letters whose two bytes of UTF-8 a writer took for one sign: those that no Korean text keeps to.
_CYRILLIC, _HANGUL, _FEW_SIGNS = re.compile("[\ud080-\ud0bf\ud180-\ud1bf]"), re.compile("[\uac00-\ud7a3]"), 8
_GLYPH_NUMBER = re.compile(r"/(?:g|G|c|C|cid|CID|glyph|index)\d+")
_DRAWN: dict[int, Literal["image", "text", "graphics"]] = {
    raw.FPDF_PAGEOBJ_IMAGE: "image",
    raw.FPDF_PAGEOBJ_TEXT: "text",
    raw.FPDF_PAGEOBJ_PATH: "graphics",
    raw.FPDF_PAGEOBJ_SHADING: "graphics",
}
_WITHOUT_TEXT = {
    "image": ("scan", "is an image without a text layer"),
    "text": ("letters", "has letters that its fonts give no meaning"),
    "graphics": ("scan", "is a drawing without a text layer"),
    "": ("blank", "is blank"),
}


@dataclass(slots=True)
class OpenPdf:
    """A file opened by both libraries, and its outline; `structure` is None where pypdf finds none in it."""

    letters: pdfium.PdfDocument
    structure: PdfReader | None
    has_layers: bool = False
    titles: dict[int, dict[str, int]] | None = None  # levels of those on each page; None: the file has no outline
    memory: Memory = field(default_factory=Memory)


def read_page(pdf: OpenPdf, number: int) -> Page:
    """The page with this number, counted from 1. Any failure belongs to this page alone."""
    try:
        structure = None
        with contextlib.suppress(Exception):
            structure = pdf.structure.pages[number - 1] if pdf.structure is not None else None
        try:
            damage = _damage(structure)
        except Exception:
            damage = "damaged"
        if damage == "large":
            return Page(number, "", "too-complex", f"page {number} was given up: it holds more than any real page")
        page = pdf.letters[number - 1]
        runs, notes = read_glyphs(page, pdf.has_layers, cache(partial(_glyph_text, structure)))
        beside, more = Beside(), list[str]()
        titles = None if pdf.titles is None else pdf.titles.get(number, {})
        with contextlib.suppress(Exception):
            beside = read_annotations(structure) if structure is not None else beside
        grids = list[Grid]()
        with contextlib.suppress(Exception):  # without the rules the places of the letters tell what is a table
            grids = grids_on(page) if runs else []
        text = lay_out(runs, beside.values, page.get_bbox(), pdf.memory, titles, page.get_rotation() // 90, grids)
        with contextlib.suppress(Exception):
            more = [*dict.fromkeys(beside.lines), *link_lines(beside.links, runs, text), *figure_lines(page)]
        if not notes and structure is not None and _is_doubtful(text):  # pypdf does not know what nobody sees
            text = _second_opinion(structure, text)
        text = _clean("\n".join([text, *more]))
        notes += ["a part of it is damaged and was left out"] if damage else []
        return _judge(number, text, page, notes) if text else _explain(number, page, notes, damage)
    except pdfium.PdfiumError:
        found = len(pdf.structure.pages) if pdf.structure is not None else 0
        is_missing = 0 < found < number
        missing = f"page {number} is missing: the file announces {len(pdf.letters)} pages and holds {found}"
        return Page(number, "", "unreadable", missing if is_missing else f"page {number} is damaged")
    except MemoryError:
        return Page(number, "", "too-complex", f"page {number} was given up: it takes more memory than is allowed")
    except Exception as error:
        return Page(number, "", "unreadable", f"page {number} is damaged [{type(error).__name__}]")


def _damage(page: PageObject | None) -> Literal["", "missing", "large", "damaged"]:
    """The state of the streams that the page is drawn by: PDFium passes over what it cannot unpack."""
    if page is None or "/Contents" not in page:
        return ""
    content = page["/Contents"]
    if content is None or isinstance(content, NullObject):
        return "missing"
    num_bytes = 0
    for stream in content if isinstance(content, ArrayObject) else [content]:
        stream = stream.get_object()
        if not isinstance(stream, StreamObject):
            return "missing"
        if stream.get("/Filter") in ("/FlateDecode", ["/FlateDecode"]):
            unpack = zlib.decompressobj()
            try:
                num_bytes += len(unpack.decompress(stream._data, MOST_BYTES))
            except zlib.error:
                return "damaged"
            if num_bytes >= MOST_BYTES:
                return "large"
            if not unpack.eof:
                return "damaged"
    return ""


def _glyph_text(page: PageObject | None, font_name: str, code: int) -> str:
    """The text that the font gives to a code that PDFium does not know; "" if nothing, U+FFFD if it is no character."""
    with contextlib.suppress(Exception):
        fonts = page["/Resources"]["/Font"] if page is not None else {}  # type: ignore[index]
        font = next(one for one in (it.get_object() for it in fonts.values()) if font_name in str(one["/BaseFont"]))
        if str(font.get("/ToUnicode")) in ("/Identity-H", "/Identity-V"):  # no table: the code is that of the letter
            return ""
        if font["/Subtype"] == "/Type0":  # the code is the number of a glyph
            is_embedded = "/FontFile" in " ".join(font["/DescendantFonts"][0]["/FontDescriptor"])
            return "\ufffd" if "/ToUnicode" in font or is_embedded else ""
        number = 0
        for item in font["/Encoding"]["/Differences"]:
            if isinstance(item, int):
                number = item
            elif number == code:
                return _spelled(str(item))
            else:
                number += 1
    return ""


def _spelled(name: str) -> str:
    """`/T_h` is Th, `/f_f_i.alt` is ffi; a number of a glyph is no letter."""
    parts = name[1:].split(".")[0].split("_")
    if codes := _UNI.fullmatch(parts[0]):
        return bytes.fromhex(codes[1]).decode("utf-16-be", "replace")
    if len(parts) > 1 and all(len(part) == 1 for part in parts):
        return "".join(parts)
    return "\ufffd" if _GLYPH_NUMBER.fullmatch(name) else ""


def _is_doubtful(text: str) -> bool:
    return is_improbable(text) or _num_lost(text) > _MOST_LOST * len(text)


def _num_lost(text: str) -> int:
    return sum(letter == "\ufffd" or "\ue000" <= letter <= "\uf8ff" for letter in text)


def _second_opinion(page: PageObject, text: str) -> str:
    """The page's text by pypdf, where that knows the letters and PDFium does not."""
    with contextlib.suppress(Exception):
        other = page.extract_text()
        names = sum(map(len, re.findall(r"/\w+", other)))  # of glyphs: pypdf takes them where it knows no letter
        if len(other) > 0.5 * len(text) and 3 * names < len(other) and not _is_doubtful(other):
            return other
    return text


def _clean(text: str) -> str:
    # Characters beyond the first 65,536 come in two halves.
    text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if _FEW_SIGNS <= len(_HANGUL.findall(text)) == len(_CYRILLIC.findall(text)):
        text = _CYRILLIC.sub(lambda sign: sign[0].encode("utf-16-be").decode(), text)
    text = normalize(text.translate(_SIGNS).replace("\f", "\n")).strip("\n")
    return text + "\n" if text.strip() else ""


def _judge(number: int, text: str, page: pdfium.PdfPage, notes: list[str]) -> Page:
    num_letters = sum(not character.isspace() for character in text)
    if 2 * text.count("\ufffd") > num_letters:
        return Page(number, "", "letters", f"the letters of page {number} have no code: its font numbers its glyphs")
    if 2 * _num_lost(text) > num_letters:
        return Page(number, text, "letters", f"most letters of page {number} have no meaning outside its own fonts")
    if is_wrong := is_improbable(text):
        notes.append("its letters are improbable in any language: its fonts may name them wrongly")
    if _num_lost(text) > _MOST_LOST * num_letters:
        notes.append("some of its characters have no meaning outside its own fonts")
    is_scan = num_letters < _FEW_LETTERS and what_is_drawn(page) == "image"
    if is_scan:
        notes.insert(0, f"it is an image with no more than {num_letters} letters of text beside it")
    problem = f"page {number}: {'; '.join(notes)}" if notes else ""
    return Page(number, text, "scan" if is_scan else "letters" if is_wrong else "unreadable" if notes else "", problem)


def is_improbable(text: str) -> bool:
    """True if most words mix scripts, or their letters are Latin ones as no language of Europe uses them."""
    words = set(_WORD.findall(unicodedata.normalize("NFKC", text)))
    long = [{_script(letter) for letter in word} for word in words if len(word) > 2]
    mixed = sum(len(scripts) > 2 or (len(scripts) > 1 and "CJK" not in scripts) for scripts in long)
    if len(long) >= _FEW_WORDS and mixed > _MOST_MIXED * len(long):
        return True
    counts = Counter(unicodedata.normalize("NFD", "".join(words)).lower())
    if sum(counts[letter] for letter in _BY_FREQUENCY) < max(_FEW_LATIN, 0.7 * sum(map(len, words))):
        return False
    product = sum(counts[letter] * share for letter, share in zip(_BY_FREQUENCY, _FREQUENCIES, strict=True))
    return product < _LEAST_LIKE * math.hypot(*(counts[letter] for letter in _BY_FREQUENCY)) * math.hypot(*_FREQUENCIES)


@cache
def _script(letter: str) -> str:
    script = unicodedata.name(letter, "NONE").split()[0]
    return "CJK" if script in ("HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA", "HANGUL", "IDEOGRAPHIC") else script


def _explain(number: int, page: pdfium.PdfPage, notes: list[str], damage: str) -> Page:
    """Why there is no text at all."""
    if damage == "missing":
        return Page(number, "", "unreadable", f"the content of page {number} is missing from the file")
    drawn = what_is_drawn(page)
    if notes:
        notes = ["it is an image without a text layer", *notes] if drawn == "image" else notes
        return Page(number, "", "scan" if drawn == "image" else "unreadable", f"page {number}: {'; '.join(notes)}")
    code, why = _WITHOUT_TEXT[drawn]
    return Page(number, "", code, f"page {number} {why}")


def what_is_drawn(page: pdfium.PdfPage) -> Literal["image", "text", "graphics", ""]:
    """The most informative mark on the page."""
    drawn = {_DRAWN.get(one.type) for one in page.get_objects(max_depth=4)}
    return next((kind for kind in ("image", "text", "graphics") if kind in drawn), "")  # type: ignore[return-value]
