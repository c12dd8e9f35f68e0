"""Glyphs of a PDF as the text of their line: accents put on their letters, raised and lowered figures marked."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, replace
from itertools import groupby

_EXPONENT = re.compile(r"[^\W_]\Z|[+\-\u2212\u2013]?[^\W_]?\d[\w,.\-\u2212\u2013]*\Z")
# Accents that TeX draws over letters, as those that Unicode puts behind a letter.
_DRAWN = "`\u00b4\u02c6\u02dc\u00af\u02d8\u02d9\u00a8\u02da\u02dd\u02c7\u00b8\u02db"
_BEHIND = "\u0300\u0301\u0302\u0303\u0304\u0306\u0307\u0308\u030a\u030b\u030c\u0327\u0328"
_ACCENTS = dict(zip(_DRAWN, _BEHIND, strict=True))
_DOTLESS = str.maketrans("\u0131\u0237", "ij")


@dataclass(slots=True)
class Placed:
    """A glyph on its line; `rise` is +1 where it is raised, -1 where it is lowered, `lead` the gap that is no space."""

    text: str
    left: float
    right: float
    rise: int = 0
    lead: float = 0.0
    size: float = 0.0


def composed(glyphs: list[Placed]) -> list[Placed]:
    """The glyphs, accents that lie over a letter beside them put on it."""
    if not any(glyph.text in _ACCENTS for glyph in glyphs):
        return glyphs
    kept: list[Placed] = []
    for glyph in glyphs:
        last = kept[-1] if kept else glyph
        letter, accent = (last, glyph) if glyph.text in _ACCENTS else (glyph, last)
        shared = min(last.right, glyph.right) - max(last.left, glyph.left)
        narrow = min(last.right - last.left, glyph.right - glyph.left)
        is_pair = accent.text in _ACCENTS and letter.text not in _ACCENTS and letter.text.isalpha()
        if is_pair and shared > 0.5 * narrow > 0:
            text = letter.text.translate(_DOTLESS) + _ACCENTS[accent.text]
            kept[-1] = replace(letter, text=unicodedata.normalize("NFC", text))
        else:
            kept.append(glyph)
    return kept


def spoken(glyphs: list[Placed]) -> str:
    """The text, with `^` before raised figures, and `_` before lowered ones that follow another figure."""
    parts: list[str] = []
    groups = [(rise, "".join(glyph.text for glyph in group)) for rise, group in groupby(glyphs, lambda one: one.rise)]
    for index, (rise, text) in enumerate(groups):
        before = parts[-1][-1:] if parts else ""
        after = groups[index + 1][1][:1] if index + 1 < len(groups) else ""
        is_exponent = rise > 0 and before.strip() and _EXPONENT.match(text.strip())
        if is_exponent or (rise < 0 and before.isdigit() and text[:1].isdigit()):
            mark = "^" if rise > 0 else "_"
            text = f"{mark}{{{text}}}" if after.isalnum() else mark + text
        elif rise > 0 and not before and after.isalpha():  # the number of a note before its text
            text += " "
        parts.append(text)
    return "".join(parts)
