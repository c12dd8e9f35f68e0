"""OpenDocument texts and presentations (.odt, .odp): paragraphs, lists, tables and notes, from the XML itself.

Of the libraries, odfpy leaves all of that to its caller, and odfdo loses exponents, numbers of lists and merged cells.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.etree.ElementTree import Element

from ondevice.documents.formats.archive import Archive, attribute, inner, resolve, tag
from ondevice.documents.formats.html import html_blocks
from ondevice.documents.formats.layout import Cell, Held, spread
from ondevice.documents.formats.normalize import normalize
from ondevice.documents.formats.odt_numbers import HEADINGS, Numbers
from ondevice.documents.formats.reader import Reader, Request
from ondevice.documents.formats.rows import as_row
from ondevice.documents.formats.sections import Block, as_pages, sections
from ondevice.documents.types import Page
from ondevice.errors import DocumentError
from ondevice.search.outline import headed

_SKIPPED = frozenset({"tracked-changes", "note-citation", "forms", "hidden-text", "sequence-decls", "automatic-styles"})
_NAMED = {"annotation": "[comment: ", "note": "[note: ", "title": "[picture: ", "desc": "[picture: "}
_ROWS = frozenset({"table-rows", "table-row-group", "table-header-rows"})
_PREFIX = re.compile(rb"(</?)\w+:")  # of the elements of a formula
_UNSEEN = {"none", "false", "hidden"}  # text, sheets and slides by what their styles say
_MAX_DEPTH = 200
_MAX_REPEATS = 1000  # of a space, or of a row that stands once for several equal ones


def open_odt(request: Request) -> Reader:
    """The document in sections, which begin at its headings or slides."""
    return Reader("odt", "section", _pages(request))


def _pages(request: Request) -> Iterator[Page]:
    with Archive(request.open(), request.name) as archive:
        content = archive.read_xml("content.xml")
        style = archive.read_xml("styles.xml") if "styles.xml" in archive else Element("none")
        walk = _Walk([content, style], archive)
        heads = [one for one in style.iter() if tag(one).startswith(("header", "footer"))]
        blocks = [*dict.fromkeys(block for one in heads for block in walk.blocks(one, 0))]
        deleted = sum(tag(one) == "deletion" for one in content.iter())
        mute = sum(tag(one) == "frame" and _is_mute(one) for one in content.iter())
        lost = ("deletion that the file still holds as a change",) * deleted
        blocks.append(Block("", lost=lost + ("picture without a description",) * mute))
        yield from as_pages(sections([*blocks, *walk.blocks(content, 0)]))


class _Walk:
    """Walks over the XML with what its styles say: numbers of lists, which text is struck, raised or hidden."""

    def __init__(self, roots: list[Element], archive: Archive) -> None:
        self._archive = archive
        self._objects = set(archive.files())  # whose formula or chart has not been read
        self._marks: dict[str, tuple[str, str]] = {}
        self._numbers = Numbers(roots)
        for style in (one for root in roots for one in root.iter() if tag(one) == "style"):
            for properties in style:
                position = attribute(properties, "text-position")
                if position[:1] not in ("", "0", "-") and not position.startswith("sub"):
                    self._marks[attribute(style, "name")] = ("^", "")
                elif attribute(properties, "text-line-through-style") not in ("", "none"):
                    self._marks[attribute(style, "name")] = ("~~", "~~")
                elif {attribute(properties, "display"), attribute(properties, "visibility")} & _UNSEEN:
                    self._marks[attribute(style, "name")] = ("[hidden: ", "]")

    def blocks(self, element: Element, depth: int) -> Iterator[Block]:
        """Blocks of all that is below an element."""
        if depth > _MAX_DEPTH:
            raise RecursionError
        for child in element:
            name = tag(child)
            if name in ("p", "h"):
                if text := self._text(child, depth + 1).strip():
                    said = attribute(child, "outline-level")
                    level = (int(said) if said.isdecimal() else 1) if name == "h" else 0
                    if level and attribute(child, "is-list-header") != "true":
                        text = self._numbers.next(HEADINGS, level, attribute(child, "start-value")) + text
                    yield Block((headed(text, level) if level else text) + "\n\n", is_heading=level > 0)
            elif name == "list":
                yield from self._items(child, "", 1, False, depth + 1)
                yield Block("\n")
            elif name == "page" or (name == "table" and tag(element) == "spreadsheet"):
                is_hidden = attribute(child, "style-name") in self._marks
                yield Block(headed(attribute(child, "name"), 1) + " (hidden)" * is_hidden + "\n\n", is_heading=True)
                yield from self._rows(child, depth) if name == "table" else self.blocks(child, depth + 1)
            elif name == "table":
                yield from self._rows(child, depth + 1)
            elif name in _NAMED or name == "object":
                yield Block(self._run(child, depth + 1) + "\n\n")
            elif name not in _SKIPPED:
                yield from self.blocks(child, depth + 1)

    def _items(self, items: Element, outer: str, level: int, goes_on: bool, depth: int) -> Iterator[Block]:
        style = attribute(items, "style-name") or outer
        goes_on |= attribute(items, "continue-numbering") == "true" or attribute(items, "continue-list") != ""
        self._numbers.begin(items, style, level, goes_on)
        for item in items:
            is_new = tag(item) == "list-item"
            for one in item:
                if tag(one) == "list":
                    yield from self._items(one, style, level + 1, goes_on, depth + 1)
                elif text := self._text(one, depth + 1).strip():
                    mark = self._numbers.next(style, level, attribute(item, "start-value")) or "- " if is_new else ""
                    yield Block(f"{mark}{text}\n", is_heading=tag(one) == "h")
                    is_new = False
        self._numbers.end(items, style)

    def _rows(self, table: Element, depth: int) -> Iterator[Block]:
        above: Held = {}
        for row in inner(table, "table-row", _ROWS):
            held = (cell for cell in row if tag(cell) == "table-cell")
            texts = ((one, "".join(block.text for block in self.blocks(one, depth + 1))) for one in held)
            cells = [Cell(text or attribute(one, "value"), *_spans(one)) for one, text in texts]
            for _ in range(min(int(attribute(row, "number-rows-repeated") or 1), _MAX_REPEATS) if cells else 0):
                yield Block(as_row(spread(cells, above)))
        yield Block("\n")

    def _text(self, element: Element, depth: int) -> str:
        return normalize("".join(self._runs(element, depth))).replace("\f", "\n")

    def _runs(self, element: Element, depth: int) -> Iterator[str]:
        if depth > _MAX_DEPTH:
            raise RecursionError
        yield element.text or ""
        for child in element:
            yield self._run(child, depth + 1) + (child.tail or "")

    def _run(self, element: Element, depth: int) -> str:
        name = tag(element)
        if name in ("s", "tab", "line-break"):
            return {"tab": "\t", "s": " " * min(int(attribute(element, "c") or 1), _MAX_REPEATS)}.get(name, "\n")
        if name == "object":
            return self._object(attribute(element, "href"), depth)
        between = " " if name in _NAMED else ""  # the author of a comment, its date, its text
        text = "" if name in _SKIPPED else between.join(self._runs(element, depth))
        if name in _NAMED:
            return f"{_NAMED[name]}{normalize(text).strip()}]" if text.strip() else ""
        before, after = self._marks.get(attribute(element, "style-name"), ("", ""))
        return before + text + after + ("\n" if name == "p" else "")

    def _object(self, target: str, depth: int) -> str:
        """A formula on one line, or the words and numbers of a chart."""
        member = f"{resolve('', target)}/content.xml"
        if member not in self._objects:
            return ""
        self._objects.remove(member)
        try:
            root = self._archive.read_xml(member)
        except DocumentError:
            return "[object: damaged]"
        if tag(root) == "math":
            blocks = html_blocks(_PREFIX.sub(rb"\1", self._archive.read(member)))
        else:
            blocks = [*self.blocks(root, depth + 1)]
        return "".join(block.text for block in blocks).strip()


def _is_mute(frame: Element) -> bool:
    """True for a picture without words."""
    names = {tag(one) for one in frame.iter()}
    return "image" in names and not names & {"title", "desc", "object", "p"}


def _spans(cell: Element) -> tuple[int, int]:
    """Columns and rows that a cell stands in, or how often it comes."""
    columns = attribute(cell, "number-columns-spanned") or attribute(cell, "number-columns-repeated") or 1
    return int(columns), int(attribute(cell, "number-rows-spanned") or 1)
