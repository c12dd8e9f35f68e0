"""Word documents (.docx, .docm, .dotx): paragraphs and tables in reading order, cut into sections at the headings.

Read from the XML itself. A walk over paragraphs and tables only, as Word libraries offer it, passes over text in
content controls, text boxes and footnotes without a word.
"""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree.ElementTree import Element

from ondevice.documents.formats.archive import Archive, resolve
from ondevice.documents.formats.normalize import normalize
from ondevice.documents.formats.reader import Reader, Request
from ondevice.documents.formats.sections import Block, join_sections
from ondevice.documents.types import Page
from ondevice.errors import DocumentError

# Deleted text, field codes, properties, and the second copy of a text box that is kept for old programs.
_SKIPPED = frozenset({"del", "moveFrom", "instrText", "delText", "Fallback", "pPr", "rPr", "sectPr", "tblPr"})
_SPACERS = {"tab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-", "ptab": "\t"}
_HEADING_STYLES = ("heading", "title")
# Notes of the document, after its body, under a heading of their own.
_NOTES = (("footnotes", "Footnotes"), ("endnotes", "Endnotes"))
_MAX_DEPTH = 200


def open_docx(request: Request) -> Reader:
    """Open the document; its sections are made while they are asked for."""
    return Reader("docx", "section", _pages(request))


def _pages(request: Request) -> Iterator[Page]:
    with Archive(request.open(), request.name) as archive:
        for number, text in enumerate(_sections(archive, request), 1):
            yield Page(number, text)


def _sections(archive: Archive, request: Request) -> Iterator[str]:
    main = _main_part(archive, request)
    folder = main.rpartition("/")[0]
    headings = _heading_styles(archive, f"{folder}/styles.xml")
    # The body is complete before a note is touched: damage there costs the notes alone.
    yield from join_sections(_walk(archive.read_xml(main), headings, 0))
    for part, title in _NOTES:
        member = f"{folder}/{part}.xml"
        if member in archive:
            blocks = list(_walk(archive.read_xml(member), headings, 0))
            if blocks:
                yield from join_sections([Block(f"{title}\n\n", is_heading=True), *blocks])


def _main_part(archive: Archive, request: Request) -> str:
    if "_rels/.rels" in archive:
        for relation in archive.read_xml("_rels/.rels").iter():
            if relation.get("Type", "").endswith("/officeDocument"):
                member = resolve("", relation.get("Target", "").lstrip("/"))
                if member and member in archive:
                    return member
    if "word/document.xml" not in archive:
        fix = "Open it in Word or LibreOffice, save it again, then open the new file."
        raise DocumentError("its main part is missing", where=request.name, fix=fix)
    return "word/document.xml"


def _heading_styles(archive: Archive, member: str) -> frozenset[str]:
    """Identifiers of the styles that make a heading; their names are English in every language of Word."""
    if member not in archive:
        return frozenset()
    found = set()
    for style in archive.read_xml(member).iter():
        if _tag(style) == "style":
            names = [_value(child).lower() for child in style if _tag(child) == "name"]
            if any(name.startswith(_HEADING_STYLES) for name in names):
                found.add(_attribute(style, "styleId"))
    return frozenset(found)


def _walk(element: Element, headings: frozenset[str], depth: int) -> Iterator[Block]:
    """Blocks of all paragraphs and tables below `element`, whatever they are wrapped in."""
    if depth > _MAX_DEPTH:
        raise RecursionError
    for child in element:
        tag = _tag(child)
        if tag == "p":
            text = _text(child, depth)
            if text.strip():
                yield Block(text.strip("\n") + "\n\n", _style(child) in headings)
        elif tag == "tbl":
            yield from _rows(child, depth)
        elif tag not in _SKIPPED:
            yield from _walk(child, headings, depth + 1)


def _rows(table: Element, depth: int) -> Iterator[Block]:
    for row in _children(table, "tr"):
        cells = (" ".join(_text(cell, depth).split()) for cell in _children(row, "tc"))
        line = " | ".join(cells)
        if line.strip(" |"):
            yield Block(line + "\n")
    yield Block("\n")


def _children(element: Element, wanted: str) -> Iterator[Element]:
    """Rows of a table, cells of a row: also those inside a content control or a tracked change."""
    for child in element:
        tag = _tag(child)
        if tag == wanted:
            yield child
        elif tag in ("sdt", "sdtContent", "ins", "customXml", "moveTo"):
            yield from _children(child, wanted)


def _text(element: Element, depth: int) -> str:
    return normalize("".join(_runs(element, depth))).replace("\f", "\n")


def _runs(element: Element, depth: int) -> Iterator[str]:
    if depth > _MAX_DEPTH:
        raise RecursionError
    for child in element:
        tag = _tag(child)
        if tag == "t":
            yield child.text or ""
        elif tag in _SPACERS:
            yield _SPACERS[tag]
        elif tag not in _SKIPPED:
            yield from _runs(child, depth + 1)
            if tag == "p":
                # A paragraph inside: of a text box, or of a cell.
                yield "\n"


def _style(paragraph: Element) -> str:
    for properties in paragraph:
        if _tag(properties) == "pPr":
            return next((_value(child) for child in properties if _tag(child) == "pStyle"), "")
    return ""


def _tag(element: Element) -> str:
    """Without its namespace: strict and transitional files differ in nothing else."""
    return element.tag.rpartition("}")[2]


def _value(element: Element) -> str:
    return _attribute(element, "val")


def _attribute(element: Element, name: str) -> str:
    return next((value for key, value in element.items() if key.rpartition("}")[2] == name), "")
