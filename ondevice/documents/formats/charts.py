"""Points of charts in Office files as the chart shows them: numbers in their formats, gaps, groups of categories."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from xml.etree.ElementTree import Element, SubElement

from ondevice.documents.formats.archive import attribute, tag
from ondevice.documents.formats.sheet_numbers import is_date, is_number, is_time, shown

_CACHES = frozenset({"numCache", "numLit", "strCache", "strLit", "multiLvlStrCache"})
_GAP = "-"
_MOST_POINTS = 100_000
_DAY_ZERO, _LATER = datetime(1899, 12, 30), 1462  # days to the first one of a file that counts from 1904


def show_points(root: Element) -> Element:
    """Give every series a point for each category, with the text that the chart has for it."""
    later = any(tag(one) == "date1904" and attribute(one, "val") not in ("0", "false") for one in root.iter())
    for cache in [one for one in root.iter() if tag(one) in _CACHES]:
        texts = list(_texts(cache, _LATER * later))
        for one in [one for one in cache if tag(one) in ("pt", "lvl")]:
            cache.remove(one)
        space = cache.tag.rpartition("}")[0] + "}" if "}" in cache.tag else ""
        for at, text in enumerate(texts):
            SubElement(SubElement(cache, f"{space}pt", idx=str(at)), f"{space}v").text = text
    return root


def _texts(cache: Element, later: int) -> Iterator[str]:
    code = next((one.text or "" for one in cache if tag(one) == "formatCode"), "")
    levels = [one for one in cache if tag(one) == "lvl"] or [cache]
    points = [{attribute(one, "idx"): one for one in level if tag(one) == "pt"} for level in levels]
    told = next((attribute(one, "val") for one in cache if tag(one) == "ptCount"), "")
    count = int(told) if told.isdecimal() else 1 + max((int(at) for at in points[0] if at.isdecimal()), default=-1)
    held = [_GAP] * len(points)
    for at in range(min(count, _MOST_POINTS)):
        for level, found in enumerate(points):
            if (point := found.get(str(at))) is not None:
                said = "".join(point.itertext()).strip()
                held[level] = _shown(attribute(point, "formatCode") or code, said, later) or _GAP
            elif level == 0:
                held[level] = _GAP  # a group goes on with the categories behind its first one
        yield " ".join(reversed(held))


def _shown(code: str, written: str, later: int) -> str:
    with suppress(ValueError, OverflowError):
        if is_date(code):
            time = _DAY_ZERO + timedelta(days=float(written) + later)
            return time.isoformat(" ", "seconds").removesuffix(" 00:00:00")
        written = f"{float(written):.15g}" if "." in written and code else written
    return shown(code, written) if is_time(code) or is_number(code) else written
