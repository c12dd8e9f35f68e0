"""HTML to blocks of text: headings, paragraphs, list items, table rows. Also the chapters of EPUB books.

Selectolax builds the tree that a browser builds, so unclosed elements lose nothing. The text is written here: of ten
converters that were tried none keeps formulas, forms and merged cells and leaves out what nobody sees.
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from dataclasses import replace

from selectolax.lexbor import LexborHTMLParser

from ondevice.documents.formats.decode import Decoder, known_encoding
from ondevice.documents.formats.html_hidden import Hidden
from ondevice.documents.formats.html_page import PageText
from ondevice.documents.formats.reader import Reader, Request
from ondevice.documents.formats.sections import Block, as_pages, front_matter, sections

_NONE: Mapping[str, list[Block]] = {}
_CHARSET = re.compile(rb"""<meta[^>]{1,200}?charset\s*=\s*["']?\s*([\w.:-]{1,40})""", re.IGNORECASE)
_XML_ENCODING = re.compile(rb"""^\s*<\?xml[^>]{1,100}?encoding\s*=\s*["']([\w.:-]{1,40})["']""")
# What browsers take these names for (WHATWG): each is part of the other, which pages really use.
_MEANT = {
    "iso8859-1": "cp1252", "ascii": "cp1252", "iso8859-9": "cp1254", "iso8859-11": "cp874", "tis-620": "cp874",
    "gb2312": "gb18030", "gbk": "gb18030", "euc_kr": "cp949", "shift_jis": "cp932", "big5": "big5hkscs",
}  # fmt: skip
_ABOUT = {
    "author": "Author", "dc.creator": "Author", "dcterms.creator": "Author", "date": "Date", "dc.date": "Date",
    "dcterms.date": "Date", "article:published_time": "Date",
}  # fmt: skip
_TITLE = re.compile(r"(<title[^>]*>[^<]*)(?=<(?!/title))", re.IGNORECASE)
_XHTML = re.compile(r"\s*<(?:\?xml|!DOCTYPE\s+html\s+PUBLIC|html[^>]*xmlns)", re.IGNORECASE)
_CDATA = re.compile(r"<!\[CDATA\[(.*?)\]\]>", re.DOTALL)
_SUBSET = re.compile(r"<!DOCTYPE[^>\[]*\[(.*?)\]\s*>", re.DOTALL | re.IGNORECASE)
_ENTITY = re.compile(r"""<!ENTITY\s+([\w.-]+)\s+["']([^"']{0,200})["']""")
_EMPTY = re.compile(r"<(?!(?:area|br|col|embed|hr|img|input|link|meta|source|track|wbr)\b)([\w:]+)((?:\s[^<>]*)?)/>")


def open_html(request: Request) -> Reader:
    """A web page as sections that begin at its headings."""
    return Reader("html", "section", as_pages(sections(html_blocks(request.read()))))


def html_blocks(source: bytes | str, charset: str = "") -> list[Block]:
    """The text of a page in reading order, without what is not text and what nobody sees.

    Args:
        source: the page; bytes are decoded as browsers do, but for those that are sound UTF-8.
        charset: what a header says of the bytes; it comes before what they say themselves.
    """
    tree, blocks = page_blocks(source, charset)
    return front_matter(_about(tree), blocks)


def page_blocks(
    source: bytes | str, charset: str = "", names: Mapping[str, list[Block]] = _NONE, is_spaced: bool = False
) -> tuple[LexborHTMLParser, list[Block]]:
    """The tree of a page and its blocks, without its title. See `html_blocks` and `PageText`."""
    decoder = Decoder(declared_encoding(source, charset) if isinstance(source, bytes) else "")
    markup = "".join(decoder.decode([source])) if isinstance(source, bytes) else source
    tree = LexborHTMLParser(_as_html(markup))
    blocks = PageText(tree, Hidden(tree), names, is_spaced).blocks()
    if not any(block.text for block in blocks):
        blocks = PageText(tree, Hidden(tree, is_menu_shown=True), names, is_spaced).blocks()
    blocks = [replace(block, lost=block.lost + decoder.lost(block.text)) for block in blocks]
    blocks[:1] = [replace(block, note=decoder.note) for block in blocks[:1]]
    return tree, blocks


def declared_encoding(data: bytes, charset: str = "") -> str:
    """Encoding of a page by what is said of it, "" if that cannot be true."""
    match = _XML_ENCODING.match(data[:1024]) or _CHARSET.search(data[:4096])
    name = known_encoding(charset) or (known_encoding(match[1].decode("ascii", "replace")) if match else "")
    if not data.isascii():
        try:
            data.decode("utf-8")
            return "utf-8"
        except UnicodeDecodeError:
            name = "" if name == "utf-8" else name
    # These words could not have been found by their ASCII letters if the page were in UTF-16.
    return "" if name.startswith(("utf-16", "utf-32")) and not charset else _MEANT.get(name, name)


def _as_html(markup: str) -> str:
    """Markup whose end is not lost in an unclosed title or comment; XHTML as HTML, its own entities resolved."""
    markup = _TITLE.sub(r"\1</title>", re.sub(r"<(script|title|style)(\s[^<>]*)?/>", "", markup, flags=re.IGNORECASE))
    if markup.find("-->", start := markup.rfind("<!--")) < 0 <= start:
        markup = markup[:start] + markup[start + len("<!--") :]
    if not _XHTML.match(markup):
        return markup
    if subset := _SUBSET.search(markup[:100_000]):
        own = dict(_ENTITY.findall(subset[1]))
        markup = markup[: subset.start()] + markup[subset.end() :]
        markup = re.sub(r"&([\w.-]+);", lambda found: own.get(found[1], found[0]), markup)
    markup = _CDATA.sub(lambda found: html.escape(found[1]), markup)
    return _EMPTY.sub(r"<\1\2></\1>", markup)


def _about(tree: LexborHTMLParser) -> dict[str, str]:
    """Title, author and date that the page names."""
    about = {"Title": "", "Author": "", "Date": ""}
    if tree.head is not None:
        about["Title"] = title.text() if (title := tree.head.css_first("title")) else ""
        for meta in tree.head.css("meta[content]"):
            said = meta.attributes
            if name := _ABOUT.get((said.get("name") or said.get("property") or "").lower()):
                about[name] = about[name] or said["content"] or ""
    return about
