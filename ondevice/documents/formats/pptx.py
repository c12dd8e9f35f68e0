"""Presentations (.pptx): each slide with its tables, charts, descriptions of pictures, comments and notes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import partial
from html import escape
from typing import Any
from xml.etree.ElementTree import ParseError

from defusedxml.common import DefusedXmlException
from defusedxml.ElementTree import fromstring
from office_oxide import Document

from ondevice.documents.formats.archive import Archive, changed
from ondevice.documents.formats.charts import show_points
from ondevice.documents.formats.docx_drawn import formula_text
from ondevice.documents.formats.layout import Cell, Held, spread
from ondevice.documents.formats.normalize import normalize
from ondevice.documents.formats.reader import Reader, Request
from ondevice.documents.formats.rows import as_row
from ondevice.documents.formats.sections import Block
from ondevice.documents.types import Page
from ondevice.search.outline import headed

_FORMULA = re.compile(rb"<a14:m\b[^>]*>(.*?)</a14:m>", re.DOTALL)
_NAMES = b"<x xmlns:m='m' xmlns:a='a' xmlns:w='w' xmlns:r='r' xmlns:mc='mc'>%s</x>"


def open_pptx(request: Request) -> Reader:
    """The presentation, slide by slide in the order in which they are shown."""
    with Archive(request.open(), request.name) as archive:
        # The library leaves out what parts the numbers of a formula.
        changes = {"ppt/charts/": partial(changed, change=show_points), "ppt/slides/": partial(_FORMULA.sub, _as_run)}
        data = archive.rewritten(changes)
    slides = Document.from_bytes(data, "pptx").to_ir()["sections"]
    return Reader("pptx", "slide", _pages(slides, request.first), len(slides) or None)


def _pages(slides: list[dict[str, Any]], first: int) -> Iterator[Page]:
    for number, slide in enumerate(slides[first - 1 :], first):
        lost = list[str]()
        text = "".join(_lines(slide["elements"], lost))
        if notes := "".join(_lines(slide.get("speaker_notes", ()), lost)):
            text += f"\nNotes:\n{notes}"
        if text.strip() or lost:
            text = ("(hidden slide)\n" if slide.get("hidden") else "") + text if text.strip() else ""
            yield Block(normalize(text).replace("\f", "\n"), lost=tuple(lost)).page(number, "slide")
        else:
            yield Page(number, "", "blank", f"slide {number} has no text")


def _as_run(found: re.Match[bytes]) -> bytes:
    """A formula as text on one line."""
    try:
        text = formula_text(fromstring(_NAMES % found[1]))
    except (ParseError, DefusedXmlException, RecursionError):
        return found[0]
    return f"<a:r><a:t>{escape(text)}</a:t></a:r>".encode()


def _lines(elements: Iterable[dict[str, Any]], lost: list[str]) -> Iterator[str]:
    """The lines of a slide; what is no text is added to `lost`, as in `Block.lost`."""
    for element in elements:
        kind = element["type"]
        if kind in ("paragraph", "heading"):
            if text := "".join(map(_run, element["content"])).strip():
                yield (headed(text, 1) if kind == "heading" else text) + "\n"
        elif kind == "table":
            above: Held = {}
            for row in element["rows"]:
                texts = ((one, "".join(_lines(one["content"], lost))) for one in row["cells"])
                yield as_row(spread((Cell(text, one["col_span"], one["row_span"]) for one, text in texts), above))
        elif kind == "list":
            for number, item in enumerate(element["items"], element.get("start_number") or 1):
                inner = [item["nested"] | {"type": "list"}] if item.get("nested") else []
                yield f"{number}. " if element.get("ordered") else "- "
                yield from _lines([*item["content"], *inner], lost)
        elif kind == "image" and element.get("alt_text"):
            yield f"[picture: {element['alt_text']}]\n"
        elif kind == "image":
            lost.append("picture without a description")
        elif isinstance(element.get("content"), list):
            yield "Comment: " if kind == "endnote" else ""
            yield from _lines(element["content"], lost)


def _run(run: dict[str, Any]) -> str:
    text: str = run.get("text", "\n" if run["type"] == "line_break" else "")
    if run.get("strikethrough"):
        return f"~~{text}~~"
    return {"superscript": "^", "subscript": "_"}.get(run.get("vertical_align", ""), "") + text
