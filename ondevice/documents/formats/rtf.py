"""Rich text (RTF): by striprtf, which leaves formats out; before, those that change what is said become text."""

from __future__ import annotations

import re
from itertools import chain

from striprtf.striprtf import rtf_to_text

from ondevice.documents.formats.decode import Decoder
from ondevice.documents.formats.normalize import normalize
from ondevice.documents.formats.plain import number_pages
from ondevice.documents.formats.reader import Reader, Request
from ondevice.documents.formats.sections import Block
from ondevice.documents.formats.split import split_pages, split_parts

# A run is a group without groups in it: control words, then text.
_RUN = r"\{((?:[^{}\\]|\\[^a-z]|\\(?!(?:%s)(?![a-z0-9]))[a-z]+)*+)\\(?:%s)(?![a-z0-9]) ?((?:[^{}\\]|\\.)*+)\}"


def _run(words: str) -> re.Pattern[str]:
    return re.compile(_RUN % (words, words), re.DOTALL)


_UNSEEN = _run("v|deleted")
_CHANGES = (
    (_run("strike|striked1"), r"{\1 ~~\2~~}"),
    (_run(r"super|up[1-9]\d*"), r"{\1 ^\2}"),
    (re.compile(r"\\super(?![a-z0-9])((?:\\[a-z]+-?\d*)*+) ?(?=[^\s\\{}])"), r"\1 ^"),  # up to \nosupersub
    (re.compile(r"\\(?:\*\\shpinst|shp(?:inst|txt)?)(?![a-z])"), " "),  # text boxes
    (re.compile(r"\\pntext(?![a-z])"), ""),  # the number of an item, in files of WordPad
    (re.compile(r"\\strike0? ?(?![a-z0-9])"), "~~"),
    (re.compile(r"(?:\\\*)?\\(?:footnote|annotation)(?![a-z])((?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*+\})*+)"), r" [note:\1]"),
    (re.compile(r"\\(?:header|footer)[lrf]?(?![a-z])"), " "),
    (re.compile(r"\\nestcell(?![a-z])"), r"\\cell"),
)


def open_rtf(request: Request) -> Reader:
    """The text in pages if the file breaks them, else in parts."""
    markup, num_unseen = _UNSEEN.subn("", request.read().decode("latin-1"))
    for pattern, text in _CHANGES:
        markup = pattern.sub(text, markup)
    text = rtf_to_text(markup, encoding="cp1252", errors="replace")
    text = normalize(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))  # emoji are two numbers
    split, unit = (split_pages, "page") if "\f" in text else (split_parts, "part")
    pages = number_pages(split([text]), Decoder(), unit)
    if num_unseen and (first := next(pages, None)):
        lost = ("passage of hidden or deleted text",) * num_unseen
        pages = chain([Block(first.text, lost=lost).page(1, unit)], pages)
    return Reader("rtf", unit, pages)
