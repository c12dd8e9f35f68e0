"""Workbooks (.xlsx, .xlsm, .xls): each sheet as a table of what its cells show, its remarks, its pictures."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from io import BytesIO
from typing import Literal
from xml.etree.ElementTree import Element

from office_oxide import Document

from ondevice.documents.formats.archive import Archive, changed, tag
from ondevice.documents.formats.charts import show_points
from ondevice.documents.formats.html import html_blocks
from ondevice.documents.formats.layout import Cell, Held, spread
from ondevice.documents.formats.normalize import normalize
from ondevice.documents.formats.reader import Reader, Request
from ondevice.documents.formats.rows import BETWEEN, as_row, table_parts
from ondevice.documents.formats.sections import Block
from ondevice.documents.formats.sheet_numbers import as_shown
from ondevice.documents.types import Page

# HTML as the library writes it; its other form, a tree, would take a kilobyte for each cell.
_SHEET, _TABLE = re.compile(r"\n<hr />\n(?=<h2>)"), re.compile(r"<table>(.*?)</table>", re.DOTALL)
_ROW, _CELL = re.compile(r"<tr>(.*?)</tr>", re.DOTALL), re.compile(r"<t[dh]([^>]*)>(.*?)</t[dh]>", re.DOTALL)
_TAG, _TITLE = re.compile(r"<(?!/?su[bp]>)[^>]*>"), re.compile(r"<h2>(.*?)</h2>")
_FIGURE = re.compile(r"<figure><figcaption>(.*?)</figcaption></figure>", re.DOTALL)
_MUTE = "picture without a description"
_ESCAPE = re.compile("_x([0-9A-Fa-f]{4})_")  # of a sign that XML forbids


def open_sheets(request: Request) -> Reader:
    """The workbook, sheet by sheet."""
    kind: Literal["xls", "xlsx"] = "xls"
    hidden, data = set[str](), request.read()
    if data.startswith(b"PK"):
        with Archive(BytesIO(data), request.name) as archive:
            book = archive.read_xml("xl/workbook.xml")
            charts, pictures = (partial(changed, change=change) for change in (show_points, _describe))
            sheets = as_shown(archive)
            data = archive.rewritten({"xl/charts/": charts, "xl/drawings/": pictures, "xl/worksheets/": sheets})
        kind, hidden = "xlsx", {one.get("name", "") for one in book.iter() if one.get("state", "visible") != "visible"}
    found = _SHEET.split(Document.from_bytes(data, kind).to_html())
    return Reader("xlsx", "sheet", _pages(found, request.first, hidden), len(found))


def _describe(drawing: Element) -> None:
    """Give each picture the descriptions of all in its place: the library takes one there, if it is described."""
    for place in drawing:
        pictures = [one[0] for one in place.iter() if tag(one) == "nvPicPr" and len(one)]
        told = "\n".join(" ".join(one.get("descr", "").split()) or _MUTE for one in pictures)
        for one in pictures:
            one.set("descr", told)


def _pages(sheets: list[str], first: int, hidden: set[str]) -> Iterator[Page]:
    for number, sheet in enumerate(sheets[first - 1 :], first):
        title = _TITLE.search(sheet)
        pictures = [told for figure in _FIGURE.findall(sheet) for told in figure.split("\n")]
        lost = tuple(told for told in pictures if told == _MUTE)
        sheet = _FIGURE.sub("", sheet) + "".join(f"<p>[Picture: {told}]</p>" for told in pictures if told != _MUTE)
        text = "(hidden sheet)\n" if title and html.unescape(title[1]) in hidden else ""
        for index, piece in enumerate(_TABLE.split(sheet)):
            if index % 2:
                text += "".join(table_parts(_rows(piece), BETWEEN)) + "\n"
            else:
                text += "".join(block.text for block in html_blocks(piece))
        is_blank = not _TAG.sub("", sheet[title.end() if title else 0 :]).strip()
        page = Block(normalize(text).replace("\f", "\n"), lost=lost).page(number, "sheet")
        is_empty = is_blank and not lost
        yield replace(page, problem_code="blank", problem=f"sheet {number} is blank") if is_empty else page


def _rows(table: str) -> Iterator[str]:
    above: Held = {}
    for row in _ROW.finditer(table):
        cells = (Cell(_text(one[2]), *_spans(one[1])) for one in _CELL.finditer(row[1]))
        if line := as_row(spread(cells, above)):
            yield line


def _text(cell: str) -> str:
    """The text that a cell shows, its raised and lowered letters as such."""
    cell = _TAG.sub("", cell)
    text = "".join(block.text for block in html_blocks(cell)) if "<su" in cell else html.unescape(cell)
    return _ESCAPE.sub(lambda found: chr(int(found[1], 16)), text)


def _spans(attributes: str) -> tuple[int, int]:
    """Columns and rows that a cell spans."""
    told = dict(re.findall(r'(\w+)="(\d+)"', attributes)) if attributes else {}
    return int(told.get("colspan", 1)), int(told.get("rowspan", 1))
