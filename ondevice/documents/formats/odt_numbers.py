"""Numbers of lists and headings in an OpenDocument file, which only its styles tell."""

from __future__ import annotations

from collections.abc import Iterable
from xml.etree.ElementTree import Element

from ondevice.documents.formats.archive import attribute, tag
from ondevice.documents.formats.layout import LETTERED, ordinal

HEADINGS = "outline"
_UNSAID = {"num-format": "1", "num-suffix": "."}  # of a level that does not say how its numbers look


class Numbers:
    """Counts the items of every style of lists, level by level from 1."""

    def __init__(self, roots: Iterable[Element]) -> None:
        self._levels: dict[str, dict[int, dict[str, str]]] = {}
        self._counts: dict[str, dict[int, int]] = {}
        self._ended: dict[str, dict[int, int]] = {}  # counts of lists that others go on with, by id
        for style in (one for root in roots for one in root.iter() if tag(one) in ("list-style", "outline-style")):
            name = HEADINGS if tag(style) == "outline-style" else attribute(style, "name")
            levels = self._levels.setdefault(name, {})
            for one in style:
                said = {key.rpartition("}")[2]: value for key, value in one.items()}
                is_number = not tag(one).endswith(("bullet", "image"))
                said = said if "num-format" in said else said | (_UNSAID if is_number else {"num-format": ""})
                levels[int(said.get("level", "1"))] = said

    def begin(self, items: Element, style: str, level: int, goes_on: bool) -> None:
        """Begin a list: its numbers go on with those before, or with those of the list that it names."""
        before = attribute(items, "continue-list")
        kept = self._ended.get(before, {}) if before else self._counts.get(style, {})
        self._counts[style] = {at: count for at, count in kept.items() if at < level or goes_on}

    def end(self, items: Element, style: str) -> None:
        self._ended[attribute(items, "id")] = dict(self._counts.get(style, {}))

    def next(self, style: str, level: int, start: str = "") -> str:
        """The number of the next item with the blank behind it, "" where it has none."""
        levels, counts = self._levels.get(style, {}), self._counts.setdefault(style, {})
        said = levels.get(level, {})
        first = int(start or said.get("start-value", "1"))
        counts[level] = counts[level] + 1 if level in counts and not start else first
        for below in [at for at in counts if at > level]:
            del counts[below]
        if not said.get("num-format"):
            return ""
        shown = range(max(level - int(said.get("display-levels", "1")), 0) + 1, level + 1)
        formats = {at: levels.get(at, {}).get("num-format", "") for at in shown}
        parts = [ordinal(counts.setdefault(at, 1), LETTERED.get(one, "decimal")) for at, one in formats.items() if one]
        return f"{said.get('num-prefix', '')}{'.'.join(parts)}{said.get('num-suffix', '')} "
