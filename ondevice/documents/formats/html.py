"""HTML to blocks of text: headings, paragraphs, list items, table rows. Also the chapters of EPUB books.

A stream of tags and not a tree: time and memory grow with the text alone, and neither missing end tags nor ten
thousand nested elements lose anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser

from ondevice.documents.formats.decode import Decoder, known_encoding
from ondevice.documents.formats.normalize import normalize
from ondevice.documents.formats.plain import number_pages
from ondevice.documents.formats.reader import Reader, Request
from ondevice.documents.formats.sections import Block, join_sections

_SKIPPED = frozenset(
    {"script", "style", "template", "noscript", "title", "nav", "svg", "iframe", "object", "select", "button"}
)
_HEADINGS = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})
# A blank line after these, a new line after those.
_PARAGRAPHS = _HEADINGS | {"p", "blockquote", "pre", "table", "ul", "ol", "dl", "figure", "section", "article", "hr"}
_LINES = frozenset(
    {"div", "li", "tr", "dt", "dd", "br", "caption", "figcaption", "header", "footer", "main", "aside", "address"}
    | {"body", "thead", "tbody", "tfoot", "form", "fieldset", "details", "summary", "option", "center"}
)
_CELLS = frozenset({"td", "th"})
_WHITE_SPACE = re.compile(r"[ \t\n\r\f]+")
_CHARSET = re.compile(rb"""<meta[^>]{1,200}?charset\s*=\s*["']?\s*([\w.:-]{1,40})""", re.IGNORECASE)
_XML_ENCODING = re.compile(rb"""^\s*<\?xml[^>]{1,100}?encoding\s*=\s*["']([\w.:-]{1,40})["']""")


def open_html(request: Request) -> Reader:
    """A web page as sections that begin at its headings."""
    decoder = Decoder(declared_encoding(head := request.read()))
    texts = join_sections(html_blocks("".join(decoder.decode([head]))))
    return Reader("html", "section", number_pages(texts, decoder, "section"))


def declared_encoding(data: bytes) -> str:
    """Encoding that the page names, "" when it names none that can be true."""
    match = _XML_ENCODING.match(data[:1024]) or _CHARSET.search(data[:4096])
    name = known_encoding(match[1].decode("ascii", "replace")) if match else ""
    # These words could not have been found by their ASCII letters if the page were in UTF-16.
    return "" if name.startswith(("utf-16", "utf-32")) else name


def html_blocks(markup: str) -> Iterator[Block]:
    """The text of the page in reading order, without what is not text: scripts, styles, navigation."""
    parser = _BlockParser()
    # In slices, so that the blocks of a long page do not all wait for its end.
    for start in range(0, len(markup), 65_536):
        parser.feed(markup[start : start + 65_536])
        yield from parser.take()
    parser.close()
    parser.end_block("\n")
    yield from parser.take()


class _BlockParser(HTMLParser):
    """Collects the text between two tags that end a line."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._blocks: list[Block] = []
        self._text: list[str] = []
        self._skipped = ""  # the element that is being left out, and how deep it is nested in itself
        self._depth = 0
        self._heading = False
        self._preformatted = 0
        self._in_cell = False

    def take(self) -> list[Block]:
        blocks, self._blocks = self._blocks, []
        return blocks

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if self._skipped:
            self._depth += tag == self._skipped
            return
        if tag in _SKIPPED:
            self._skipped, self._depth = tag, 1
        elif tag in _CELLS:
            if self._in_cell or self._text:
                self._text.append("\x1f")
            self._in_cell = True
        elif tag in ("table", "tr"):
            self._in_cell = False
            self.end_block("\n")
        else:
            self._boundary(tag)
            self._heading = self._heading or tag in _HEADINGS
            self._preformatted += tag == "pre"
            if tag == "li":
                self._text.append("- ")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        # <script/> and <p/> in XHTML: nothing inside, so nothing to skip.
        if not self._skipped:
            self._boundary(tag)

    def handle_endtag(self, tag: str) -> None:
        if self._skipped:
            self._depth -= tag == self._skipped
            if self._depth == 0:
                self._skipped = ""
            return
        if tag in ("table", "tr"):
            self._in_cell = False
        self._boundary(tag)
        if tag in _HEADINGS:
            self._heading = False
        elif tag == "pre":
            self._preformatted = max(self._preformatted - 1, 0)

    def handle_data(self, data: str) -> None:
        if not self._skipped:
            self._text.append(data if self._preformatted else _WHITE_SPACE.sub(" ", data))

    def end_block(self, line_end: str) -> None:
        """Make a block of the text so far, if there is any."""
        text = normalize("".join(self._text).replace("\x1f", " | ")).replace("\f", " ")
        self._text = []
        if self._preformatted:
            text = text.strip("\n")
        else:
            text = _WHITE_SPACE.sub(" ", text).strip(" ")
        if text and text != "-":
            self._blocks.append(Block(text + line_end, self._heading))

    def _boundary(self, tag: str) -> None:
        if tag in _PARAGRAPHS or tag in _LINES:
            if self._in_cell:
                # A cell stays on the line of its row.
                self._text.append(" ")
            else:
                self.end_block("\n\n" if tag in _PARAGRAPHS else "\n")
