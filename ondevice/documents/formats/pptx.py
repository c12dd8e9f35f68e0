"""Presentations (.pptx): each slide with its tables, charts, descriptions of pictures, notes and comments.

Read from the XML itself: python-pptx brings lxml and more, and leaves charts, diagrams and descriptions to its caller.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.etree.ElementTree import Element

from ondevice.documents.formats.archive import Archive, attribute, tag
from ondevice.documents.formats.normalize import normalize
from ondevice.documents.formats.reader import Reader, Request
from ondevice.documents.types import Page
from ondevice.errors import DocumentError

_SLIDE = re.compile(r"ppt/slides/slide(\d+)\.xml")
# Parts that a slide refers to, under the word for them.
_PARTS = {"chart": "Chart", "diagramData": "Diagram", "notesSlide": "Notes", "comments": "Comments"}
_MAX_DEPTH = 200


def open_pptx(request: Request) -> Reader:
    """The presentation, slide by slide in the order in which they are shown."""
    archive = Archive(request.open(), request.name)
    slides = _slides(archive)
    return Reader("pptx", "slide", _pages(archive, slides, request.first), len(slides) or None)


def _slides(archive: Archive) -> list[str]:
    main = "ppt/presentation.xml"
    parts = archive.relations(main)
    order = archive.read_xml(main).iter() if main in archive else ()
    named = [parts.get(value, ("", ""))[1] for one in order if tag(one) == "sldId" for value in one.attrib.values()]
    found = [match for match in map(_SLIDE.fullmatch, archive.files()) if match]
    return list(filter(None, named)) or [one[0] for one in sorted(found, key=lambda one: int(one[1]))]


def _pages(archive: Archive, slides: list[str], first: int) -> Iterator[Page]:
    with archive:
        for number, member in enumerate(slides[first - 1 :], first):
            try:
                text = normalize("".join(_slide(archive, member))).replace("\f", "\n")
            except DocumentError as error:
                yield Page(number, "", "unreadable", f"slide {number} was given up: {error.what}")
                continue
            yield Page(number, text) if text.strip() else Page(number, "", "blank", f"slide {number} has no text")


def _slide(archive: Archive, member: str) -> Iterator[str]:
    root = archive.read_xml(member)
    if root.get("show") == "0":
        yield "(hidden slide)\n"
    yield from _lines(root, 0)
    for kind, part in archive.relations(member).values():
        if kind in _PARTS:
            text = "".join(_chart(archive.read_xml(part)) if kind == "chart" else _lines(archive.read_xml(part), 0))
            if text.strip():
                yield f"\n{_PARTS[kind]}:\n{text}"


def _lines(element: Element, depth: int) -> Iterator[str]:
    """Lines of all paragraphs and tables below an element, and of the descriptions of its pictures."""
    if depth > _MAX_DEPTH:
        raise RecursionError
    number = 0
    for child in element:
        name = tag(child)
        if name == "p" and (text := "".join(_runs(child)).strip()):
            number = number + 1 if any(tag(one) == "buAutoNum" for one in child.iter()) else 0
            yield f"{number}. {text}\n" if number else text + "\n"
        elif name == "tbl":
            yield from _rows(child, depth)
        elif name == "cNvPr" and child.get("descr"):
            yield f"[picture: {child.get('descr')}]\n"
        elif name in ("text", "t") and child.text:  # of a comment, or of nothing else
            yield child.text + "\n"
        elif name not in ("p", "Fallback"):
            yield from _lines(child, depth + 1)


def _rows(table: Element, depth: int) -> Iterator[str]:
    above: list[str] = []
    for row in (one for one in table if tag(one) == "tr"):
        cells: list[str] = []
        for cell in (one for one in row if tag(one) == "tc"):
            text = " ".join("".join(_lines(cell, depth + 1)).split())
            if cell.get("hMerge") and cells:
                text = cells[-1]
            elif cell.get("vMerge") and len(cells) < len(above):
                text = above[len(cells)]
            cells.append(text)
        above = cells
        yield " | ".join(cells) + "\n"


def _runs(paragraph: Element) -> Iterator[str]:
    for run in paragraph:
        if tag(run) == "br":
            yield "\n"
        elif tag(run) == "r" or (tag(run) == "fld" and run.get("type") != "slidenum"):
            look = next((one for one in run if tag(one) == "rPr"), run)
            text = "".join(one.text or "" for one in run if tag(one) == "t")
            raised, struck = look.get("baseline", "0"), look.get("strike", "noStrike") != "noStrike"
            mark = "" if raised == "0" else "_" if raised.startswith("-") else "^"
            yield f"~~{text}~~" if struck else mark + text
        elif tag(run) == "m":  # a formula, within an extension
            yield "".join(run.itertext())


def _chart(chart: Element) -> Iterator[str]:
    """Its titles, then a line for each series: its name, and its values after their categories."""
    yield from _lines(chart, 0)
    for series in (one for one in chart.iter() if tag(one) == "ser"):
        told = {tag(one): [value.text or "" for value in one.iter() if tag(value) == "v"] for one in series}
        values = told.get("val", told.get("yVal", []))
        names = told.get("cat", told.get("xVal", []))
        names += [""] * (len(values) - len(names))
        pairs = (f"{name} {value}".strip() for name, value in zip(names, values, strict=False))
        yield f"{' '.join(told.get('tx', []))}: {', '.join(pairs)}\n"
