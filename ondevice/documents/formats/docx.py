"""Word documents (.docx, .docm, .dotx): written as HTML, which the reader of web pages turns into pages or sections.

By hand, from the XML itself: of seven readers of Word that were tried none passed 5 of 18 files whose numbers,
formulas, comments, forms, merged cells or hidden words were known.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ondevice.documents.formats.archive import Archive
from ondevice.documents.formats.docx_html import Writer
from ondevice.documents.formats.docx_package import Package
from ondevice.documents.formats.html import page_blocks
from ondevice.documents.formats.reader import Reader, Request
from ondevice.documents.formats.sections import Block, as_pages, front_matter, sections

# Without the places where Word saw pages end, the writer's page breaks are all there is: a piece between two of them
# that fits on no page shows that more pages end than are known. With them, only a damaged file has such a piece.
_MOST_PAGE_CHARS, _MOST_SEEN_CHARS = 4000, 20_000


def open_docx(request: Request) -> Reader:
    """A document as pages where it says where they end, else as sections that begin at its headings."""
    with Archive(request.open(), request.name) as archive:
        package = Package(archive, request.name)
        writer = Writer(package, request)
        blocks = front_matter(package.about(), page_blocks(writer.document(), is_spaced=True)[1])
    pages = list(_pages(blocks))
    most = _MOST_SEEN_CHARS if writer.is_seen else _MOST_PAGE_CHARS
    if len(pages) > 1 and max(len(page.text) for page in pages) <= most:
        return Reader("docx", "page", as_pages(pages, "page"))
    blocks = [replace(block, text=block.text.replace("\f", "")) for block in blocks]
    return Reader("docx", "section", as_pages(sections(blocks)))


def _pages(blocks: list[Block]) -> Iterator[Block]:
    """The text between form feeds."""
    text, lost = "", list[str]()
    for block in blocks:
        first, *others = block.text.split("\f")
        text, lost = text + first, [*lost, *block.lost]
        for other in others:
            yield Block(text.strip("\n") + "\n", lost=tuple(lost))
            text, lost = other, []
    yield Block(text.strip("\n") + "\n", lost=tuple(lost))
