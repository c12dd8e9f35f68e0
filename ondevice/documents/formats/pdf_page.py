"""One page of a PDF: its text, or the reason why there is none or only a part of it."""

from __future__ import annotations

import contextlib
import logging
import re

from pypdf import PageObject, PdfReader
from pypdf.errors import FileNotDecryptedError, LimitReachedError
from pypdf.generic import ContentStream, IndirectObject, NameObject, NullObject

from ondevice.documents.formats.normalize import expand_ligatures, normalize
from ondevice.documents.formats.pdf_content import TextContentStream
from ondevice.documents.formats.pdf_marks import what_is_drawn
from ondevice.documents.types import Page

# A page with an image and less text than this is a scan with a stamp or a label on it.
_FEW_LETTERS = 30
_GLYPH_NAMES = re.compile(r"/(?:g|G|c|C|cid|CID|glyph|index)\d+|\(cid:\d+\)")
_CONTENTS = NameObject("/Contents")


class DamageCounter(logging.Handler):
    """Counts the losses of which pypdf only warns. Keeps no text of the warnings: they quote the file."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.count = 0
        logging.getLogger("pypdf").propagate = False
        # Streams that break off; forms that are passed over because there are too many or they are damaged.
        for name in ("pypdf.filters", "pypdf._page"):
            logging.getLogger(name).addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self.count += 1


def read_page(reader: PdfReader, number: int, damage: DamageCounter) -> Page:
    """The page with this number, counted from 1. Any failure belongs to this page alone."""
    count = damage.count
    try:
        page = reader.pages[number - 1]
        text = _clean(_extract_text(page, reader))
        if damage.count > count:
            return Page(
                number, text, "unreadable", f"a part of page {number} is damaged or too complex and was left out"
            )
        return _judge_text(number, text, page) if text else _explain(number, page)
    except LimitReachedError:
        return _give_up(number, "it holds more drawing than any real page")
    except RecursionError:
        return _give_up(number, "it is nested too deeply")
    except MemoryError:
        return _give_up(number, "it takes more memory than is allowed")
    except FileNotDecryptedError:
        return Page(number, "", "unreadable", f"page {number} cannot be decrypted")
    except Exception as error:
        # pypdf meets damage with its own errors, but also with KeyError, AttributeError, AssertionError and others.
        return Page(number, "", "unreadable", f"page {number} is damaged [{type(error).__name__}]")


def _extract_text(page: PageObject, reader: PdfReader) -> str:
    original = page.raw_get("/Contents") if "/Contents" in page else None
    contents = original.get_object() if original is not None else None
    if contents is None or isinstance(contents, NullObject | ContentStream):
        return page.extract_text()
    # extract_text takes a ready content stream as it is: here it gets the quick one.
    page[_CONTENTS] = TextContentStream(contents, reader, "bytes")
    try:
        return page.extract_text()
    finally:
        # The reader keeps every page; the unpacked content of all of them would fill the memory.
        page[_CONTENTS] = original


def _clean(text: str) -> str:
    text = expand_ligatures(normalize(text.replace("\f", "\n"))).strip("\n")
    return text + "\n" if text.strip() else ""


def _judge_text(number: int, text: str, page: PageObject) -> Page:
    letters = [character for character in text if not character.isspace()]
    # A font that names its glyphs by number has no letters: what comes out is their names.
    if 2 * sum(map(len, _GLYPH_NAMES.findall(text))) > len(letters):
        return Page(number, "", "unreadable", f"the letters of page {number} have no code: its font numbers its glyphs")
    num_lost = sum(character == "\ufffd" or "\ue000" <= character <= "\uf8ff" for character in letters)
    if 2 * num_lost > len(letters):
        return Page(number, text, "unreadable", f"most letters of page {number} have no meaning outside its own fonts")
    if len(letters) < _FEW_LETTERS:
        # Damage met here must not cost the text that was found.
        with contextlib.suppress(Exception):
            if what_is_drawn(page) == "image":
                problem = f"page {number} is an image with no more than {len(letters)} letters of text beside it"
                return Page(number, text, "scan", problem)
    return Page(number, text)


def _explain(number: int, page: PageObject) -> Page:
    """Why there is no text at all."""
    if _has_lost_content(page):
        return Page(number, "", "unreadable", f"the content of page {number} is missing from the file")
    match what_is_drawn(page):
        case "image":
            return Page(number, "", "scan", f"page {number} is an image without a text layer")
        case "text":
            return Page(number, "", "unreadable", f"page {number} has letters that its fonts give no meaning")
        case "graphics":
            return Page(number, "", "scan", f"page {number} is a drawing without a text layer")
    return Page(number, "", "blank", f"page {number} is blank")


def _has_lost_content(page: PageObject) -> bool:
    """The page points at content that is not there."""
    content = page.raw_get("/Contents") if "/Contents" in page else None
    return isinstance(content, IndirectObject) and isinstance(content.get_object(), NullObject | None)


def _give_up(number: int, why: str) -> Page:
    return Page(number, "", "too-complex", f"page {number} was given up: {why}")
