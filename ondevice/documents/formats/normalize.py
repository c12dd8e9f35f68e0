"""Text as every other part of the program may expect it, whatever the file held.

Line ends are LF; control characters, byte order marks, bidirectional overrides and what nobody sees inside words (soft
hyphens, zero-width spaces, tags) are gone, so that a word is found as it is read; lone surrogates are U+FFFD;
composition is NFC. A form feed stays: it is the page break of plain text and the splitter takes it out. Works on pieces
of any size: the pieces in which a text arrives do not change the result.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from functools import cache

# A pile of combining marks costs quadratic time to put in order. UAX #15 ("stream-safe text") breaks it up
# after 30 with U+034F; no writing system needs that many.
_MAX_MARKS = 30
_GRAPHEME_JOINER = "\u034f"
# Marks held back while waiting for the character that ends them; a longer pile is cut here.
_MAX_HELD = 4096

_LINE_BREAKS = re.compile("\r\n|[\r\x0b\x85\u2028\u2029]")
_UNWANTED = re.compile(
    "["
    "\x00-\x08\x0e-\x1f\x7f\x80-\x84\x86-\x9f"  # controls, without tab, LF, VT, FF, CR and NEL
    "\ufeff"  # byte order mark
    "\xad\u200b\u2060-\u2064\U000e0000-\U000e007f"  # soft hyphen, zero-width space, word joiner, tags
    "\u202a-\u202e\u2066-\u2069"  # bidirectional embedding, override and isolate
    "\ufff9-\ufffb\ufffe\uffff"  # interlinear annotation, non-characters
    "]+"
)
# Most texts have no such run at all, and this says so a hundred times sooner than naming every mark.
_MAYBE_LONG_RUN = re.compile(f"[^\x00-\u02ff]{{{_MAX_MARKS + 1}}}")
_SURROGATES = re.compile("[\ud800-\udfff]")


def normalize(text: str) -> str:
    """The whole text at once."""
    return "".join(normalize_chunks([text]))


def normalize_chunks(chunks: Iterable[str]) -> Iterator[str]:
    """Normalised text for text that arrives in pieces; holds back a few characters at most."""
    held = ""
    for chunk in chunks:
        held += _UNWANTED.sub("", chunk)
        end = _safe_end(held)
        if end:
            yield _finish(held[:end])
            held = held[end:]
    if held:
        yield _finish(held)


def _finish(text: str) -> str:
    text = _LINE_BREAKS.sub("\n", text)
    if text.isascii():
        return text
    text = _SURROGATES.sub("\ufffd", text)
    if _MAYBE_LONG_RUN.search(text):
        text = _long_mark_runs().sub(rf"\1{_GRAPHEME_JOINER}", text)
    return unicodedata.normalize("NFC", text)


def _safe_end(text: str) -> int:
    """Index at which `text` can be cut: nothing that follows changes what stands before."""
    floor = max(len(text) - _MAX_HELD, 0)
    for index in range(len(text) - 1, floor - 1, -1):
        if _starts_afresh(text[index]):
            # This character may still be composed with what follows; everything before it is final.
            return index
    return floor


def _starts_afresh(character: str) -> bool:
    """True if the character never melts into the one before it. LF does, after CR."""
    if character.isascii():
        return character != "\n"
    is_jamo = "\u1160" <= character <= "\u11ff"
    return not is_jamo and not unicodedata.category(character).startswith("M")


@cache
def _long_mark_runs() -> re.Pattern[str]:
    marks = "".join(chr(code) for code in range(0x300, 0x1F000) if unicodedata.combining(chr(code)))
    return re.compile(f"([{marks}]{{{_MAX_MARKS}}})(?=[{marks}])")
