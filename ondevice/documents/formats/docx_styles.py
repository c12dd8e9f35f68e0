"""Styles and numbers of a Word document: how a run looks, and the number that Word puts before a paragraph.

By hand: neither python-docx nor mammoth, docx2python, markitdown or kreuzberg writes the numbers of clauses.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from xml.etree.ElementTree import Element

from ondevice.documents.formats.archive import attribute, tag
from ondevice.documents.formats.layout import ordinal

OFF = frozenset({"0", "false", "off", "none"})
_LOOKS = frozenset({"vanish", "strike", "dstrike", "vertAlign", "pageBreakBefore", "outlineLvl"})
_HEADING_STYLE = re.compile(r"(?:heading|title)(?: ([1-9]))?")
_PLACE = re.compile(r"%([1-9])")
_MAX_BASES = 20
_NONE = Element("none")


def child(element: Element, *path: str) -> Element:
    """The first element at the end of a path of tags, an empty one where there is none."""
    for name in path:
        element = next(children(element, name), _NONE)
    return element


def children(element: Element, name: str) -> Iterator[Element]:
    return (below for below in element if tag(below) == name)


def has(element: Element, *path: str) -> bool:
    return child(element, *path) is not _NONE


def value(element: Element, *path: str) -> str:
    """The value of the element at the end of a path of tags, "" where there is none."""
    return attribute(child(element, *path), "val")


def look(properties: Element) -> dict[str, str]:
    """Properties of a run or of a paragraph, by tag; those that are on and off are "on" without a value."""
    said = {tag(one): attribute(one, "val") or "on" for one in properties if tag(one) in _LOOKS}
    font = next(filter(None, (attribute(child(properties, "rFonts"), kind) for kind in ("ascii", "hAnsi"))), "")
    said |= {tag(one): attribute(one, "val") for one in child(properties, "numPr")}
    return said | ({"font": font} if font else {})


class Styles:
    """Styles by their identifiers, each with what it takes from those that it is based on."""

    def __init__(self, root: Element) -> None:
        self._styles = {attribute(style, "styleId"): style for style in children(root, "style")}
        self.look = cache(self._look)

    def _look(self, name: str, depth: int = 0) -> dict[str, str]:
        """Properties of a style; its "heading" is a tag: names of styles are English in every language of Word."""
        style = self._styles.get(name)
        if style is None or depth > _MAX_BASES:
            return {}
        said = self._look(value(style, "basedOn"), depth + 1) | look(child(style, "rPr")) | look(child(style, "pPr"))
        found = _HEADING_STYLE.match(value(style, "name").lower())
        return said | ({"heading": f"h{min(int(found[1] or 1), 6)}"} if found else {})


class Numbering:
    """Counts the paragraphs of every list, and says their numbers."""

    def __init__(self, root: Element, styles: Styles) -> None:
        self._styles = styles
        self._lists = {attribute(one, "abstractNumId"): one for one in children(root, "abstractNum")}
        self._numbers = {attribute(one, "numId"): one for one in children(root, "num")}
        self._counts: defaultdict[str, dict[str, int]] = defaultdict(dict)  # of a list, by level
        self._begun: set[tuple[str, str]] = set()

    def next(self, said: dict[str, str], style: str) -> str:
        """The number of the next paragraph, with the blank behind it; "" where it has none.

        Args:
            said: what paragraph and style say of its list and level.
            style: of the paragraph.
        """
        number, name = said.get("numId", ""), self._list(said.get("numId", ""))
        levels = {attribute(one, "ilvl"): one for one in children(self._lists.get(name, _NONE), "lvl")}
        for override in children(self._numbers.get(number, _NONE), "lvlOverride"):
            levels |= {attribute(override, "ilvl"): one for one in children(override, "lvl")}
        by_style = (at for at, one in levels.items() if value(one, "pStyle") == style)
        level = said.get("ilvl") or next(by_style, "0")
        if level not in levels:
            return ""
        shown, counts = levels[level], self._counts[name]
        start, is_override = self._start(number, level, shown)
        is_anew = level not in counts or (is_override and (number, level) not in self._begun)
        self._begun.add((number, level))
        counts[level] = start if is_anew else counts[level] + 1
        for below in [at for at in counts if at > level and value(levels.get(at, _NONE), "lvlRestart") != "0"]:
            del counts[below]

        def printed(place: re.Match[str]) -> str:
            at = str(int(place[1]) - 1)
            above = levels.get(at, _NONE)
            count = counts.setdefault(at, self._start(number, at, above)[0])
            return ordinal(count, "decimal" if has(shown, "isLgl") else value(above, "numFmt"))

        text = _PLACE.sub(printed, value(shown, "lvlText")).strip()
        return "- " if value(shown, "numFmt") == "bullet" else f"{text} " if text else ""

    def _list(self, number: str, depth: int = 0) -> str:
        """The list that a number belongs to, also where its levels stand in a style."""
        name = value(self._numbers.get(number, _NONE), "abstractNumId")
        linked = self._styles.look(value(self._lists.get(name, _NONE), "numStyleLink")).get("numId", "")
        return self._list(linked, depth + 1) if linked and depth < _MAX_BASES else name

    def _start(self, number: str, level: str, said: Element) -> tuple[int, bool]:
        """The number that a level begins with, and True if this list begins it again."""
        overrides = children(self._numbers.get(number, _NONE), "lvlOverride")
        anew = next((value(one, "startOverride") for one in overrides if attribute(one, "ilvl") == level), "")
        found = re.fullmatch(r"\d{1,9}", anew or value(said, "start"))
        return (int(found[0]) if found else 1), anew != ""
