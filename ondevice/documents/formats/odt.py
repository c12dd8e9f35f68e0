"""OpenDocument texts and presentations (.odt, .odp): paragraphs, lists, tables and notes, from the XML itself.

Of the libraries, odfpy leaves all of that to its caller, and odfdo loses exponents, numbers of lists and merged cells.
"""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree.ElementTree import Element

from ondevice.documents.formats.archive import Archive, attribute, tag
from ondevice.documents.formats.layout import Cell, Held, spread
from ondevice.documents.formats.normalize import normalize
from ondevice.documents.formats.reader import Reader, Request
from ondevice.documents.formats.rows import as_row
from ondevice.documents.formats.sections import Block, join_sections
from ondevice.documents.types import Page
from ondevice.search.outline import headed

_SKIPPED = frozenset({"tracked-changes", "note-citation", "forms", "hidden-text", "sequence-decls", "automatic-styles"})
_NAMED = {"annotation": "[comment: ", "note": "[note: ", "title": "[picture: ", "desc": "[picture: "}
_MAX_DEPTH = 200
_MAX_REPEATS = 1000  # of a space, or of a row that stands once for several equal ones


def open_odt(request: Request) -> Reader:
    """The document in sections, which begin at its headings or slides."""
    return Reader("odt", "section", _pages(request))


def _pages(request: Request) -> Iterator[Page]:
    with Archive(request.open(), request.name) as archive:
        content = archive.read_xml("content.xml")
        style = archive.read_xml("styles.xml") if "styles.xml" in archive else Element("none")
        walk = _Walk([content, style])
        heads = [one for one in style.iter() if tag(one) in ("header", "footer")]
        blocks = [block for one in heads for block in walk.blocks(one, 0)]
        for number, text in enumerate(join_sections([*blocks, *walk.blocks(content, 0)]), 1):
            yield Page(number, text)


class _Walk:
    """Walks over the XML with what its styles say: which lists have numbers, which text is struck or raised."""

    def __init__(self, roots: list[Element]) -> None:
        self._marks: dict[str, tuple[str, str]] = {}
        self._numbered: set[str] = set()
        for style in (one for root in roots for one in root.iter()):
            name = attribute(style, "name")
            if tag(style) == "list-style" and any(tag(level) == "list-level-style-number" for level in style):
                self._numbered.add(name)
            elif tag(style) == "style":
                for properties in style:
                    if attribute(properties, "text-position").startswith("super"):
                        self._marks[name] = ("^", "")
                    elif attribute(properties, "text-line-through-style") not in ("", "none"):
                        self._marks[name] = ("~~", "~~")

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
                    yield Block((headed(text, level) if level else text) + "\n\n", is_heading=level > 0)
            elif name == "list":
                yield from self._items(child, "", depth + 1)
            elif name == "page" or (name == "table" and tag(element) == "spreadsheet"):
                yield Block(headed(attribute(child, "name"), 1) + "\n\n", is_heading=True)
                yield from self._rows(child, depth) if name == "table" else self.blocks(child, depth + 1)
            elif name == "table":
                yield from self._rows(child, depth + 1)
            elif name in _NAMED:
                yield Block(self._run(child, depth + 1) + "\n\n")
            elif name not in _SKIPPED:
                yield from self.blocks(child, depth + 1)

    def _items(self, items: Element, outer: str, depth: int) -> Iterator[Block]:
        style = attribute(items, "style-name") or outer
        number = int(attribute(items, "start-value") or 1)
        for item in items:
            mark = f"{number}. " if style in self._numbered else "- "
            number += tag(item) == "list-item"
            for one in item:
                if tag(one) == "list":
                    yield from self._items(one, style, depth + 1)
                elif text := self._text(one, depth + 1).strip():
                    yield Block(f"{mark}{text}\n", is_heading=tag(one) == "h")
                    mark = ""
        if not outer:
            yield Block("\n")

    def _rows(self, table: Element, depth: int) -> Iterator[Block]:
        above: Held = {}
        for row in (row for one in table for row in ([one] if tag(one) == "table-row" else one)):
            held = (cell for cell in row if tag(cell) == "table-cell")
            cells = [Cell("".join(block.text for block in self.blocks(one, depth + 1)), *_spans(one)) for one in held]
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
        text = "" if name in _SKIPPED else "".join(self._runs(element, depth))
        if name in _NAMED:
            return f"{_NAMED[name]}{normalize(text).strip()}]" if text.strip() else ""
        before, after = self._marks.get(attribute(element, "style-name"), ("", ""))
        return before + text + after + ("\n" if name == "p" else "")


def _spans(cell: Element) -> tuple[int, int]:
    """Columns and rows that a cell stands in, or how often it comes."""
    columns = attribute(cell, "number-columns-spanned") or attribute(cell, "number-columns-repeated") or 1
    return int(columns), int(attribute(cell, "number-rows-spanned") or 1)
