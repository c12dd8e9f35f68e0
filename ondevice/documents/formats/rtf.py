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
from ondevice.documents.formats.symbols import as_unicode

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
# Fonts of signs in the table of fonts; a field of Word for one sign; what changes the font, and what it shows.
_FONT = re.compile(r"\\(f\d+)(?:\\[a-z]+-?\d* ?|\{[^{}]*\}){0,20}\s?(Symbol|Wingdings(?: 2)?|Webdings);", re.IGNORECASE)
_SIGN = re.compile(
    r'\{\\\*\\fldinst[^}]{0,500}?SYMBOL (\d{1,5}) \\\\f "([^"}]+)"[^}]{0,500}\}++\s*'
    r"\{\\fldrslt(?:[^{}]|\{[^{}]*\})*+\}"
)
_SHOWN = re.compile(
    r"([{}])|\\(f\d+|plain)(?![a-z0-9])|\\u(-?\d{1,5})( ?(?:\\'..|[^\\{}]))?|\\'([0-9a-f]{2})"
    r"|\\(?:[a-z]+-?\d* ?|.)|([^\\{}\s]+)",
    re.DOTALL,
)


def open_rtf(request: Request) -> Reader:
    """The text in pages if the file breaks them, else in parts."""
    markup = _with_signs(request.read().decode("latin-1"))
    lost = ("sign of a symbol font, shown as \ufffd",) * markup.count("\\u65533")
    markup, num_unseen = _UNSEEN.subn("", markup)
    for pattern, text in _CHANGES:
        markup = pattern.sub(text, markup)
    text = rtf_to_text(markup, encoding="cp1252", errors="replace")
    text = normalize(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))  # emoji are two numbers
    split, unit = (split_pages, "page") if "\f" in text else (split_parts, "part")
    pages = number_pages(split([text]), Decoder(), unit)
    lost += ("passage of hidden or deleted text",) * num_unseen
    if lost and (first := next(pages, None)):
        pages = chain([Block(first.text, lost=lost).page(1, unit)], pages)
    return Reader("rtf", unit, pages)


def _with_signs(markup: str) -> str:
    """The markup with the letters in symbol fonts as their Unicode."""
    named, held = [*_FONT.finditer(markup)], [""]
    fonts = {one[1]: one[2] for one in named}
    rest = " " if "\\uc0" in markup else "?"  # for programs without Unicode

    def coded(letters: str, font: str) -> str:
        return "".join(f"\\u{ord(sign)}{rest}" for sign in as_unicode(letters, font))

    def shown(found: re.Match[str]) -> str:
        brace, font, code, instead, byte, text = found.groups("")
        if brace == "{":
            held.append(held[-1])
        elif brace and len(held) > 1:
            held.pop()
        elif font:
            held[-1] = fonts.get(font, "")
        elif held[-1] and code:
            return coded(chr(int(code) & 0xFFFF), held[-1]).removesuffix(rest) + instead
        elif held[-1] and (text or byte):
            return coded(text or chr(int(byte, 16)), held[-1])
        return found[0]

    markup = _SIGN.sub(lambda found: coded(chr(int(found[1]) & 0xFFFF), found[2]), markup)
    end = named[-1].end() if named else len(markup)  # of the names of the fonts
    return markup[:end] + _SHOWN.sub(shown, markup[end:])
