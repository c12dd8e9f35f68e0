"""A gap in pypdf's fonts: how wide a space is where a font has none.

Text set by TeX and others has no space characters: words are moved apart, and a gap as wide as a space is read as
one. For a composite font without a space pypdf takes the width of glyph 32, which is any letter, and joins the words.
"""

from __future__ import annotations

from typing import Any

from pypdf.generic import DictionaryObject

Font: Any
try:
    from pypdf.generic._font import Font
except ImportError:  # another version of pypdf, with fonts of its own
    Font = None

_NO_CHARACTER = "\0"


def mend_space_widths() -> None:
    """Let pypdf take its default width of a space for composite fonts that have none; for the whole process."""
    if Font is None or getattr(Font.from_font_resource, "is_mended", False):
        return
    original = Font.from_font_resource

    def from_font_resource(pdf_font_dict: DictionaryObject, *more: Any) -> Any:
        font = original(pdf_font_dict, *more)
        if pdf_font_dict.get("/Subtype") == "/Type0" and " " not in font.character_map.values():
            font.space_char = _NO_CHARACTER
        return font

    from_font_resource.is_mended = True  # type: ignore[attr-defined]
    Font.from_font_resource = staticmethod(from_font_resource)
