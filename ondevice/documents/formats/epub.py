"""EPUB books: the chapters in the order of the spine, with the names that the book's own contents give them.

A book may name a chapter more than once, which its format forbids: it is read where it stands first, and the places
where it comes again keep their number and say so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from urllib.parse import unquote

from selectolax.lexbor import LexborHTMLParser

from ondevice.documents.formats.archive import Archive, resolve, tag
from ondevice.documents.formats.html import page_blocks
from ondevice.documents.formats.reader import Reader, Request
from ondevice.documents.formats.sections import Block, front_matter
from ondevice.documents.types import Page
from ondevice.documents.worker.limits import MAX_PAGES
from ondevice.errors import DocumentError, DocumentTooLarge, UnsupportedDocument
from ondevice.search.outline import headed

_CONTAINER = "META-INF/container.xml"
_ENCRYPTION = "META-INF/encryption.xml"
_CONTENTS_TYPE = "application/x-dtbncx+xml"
# These only hide fonts from copying; the text is open.
_FONT_OBFUSCATION = {"http://www.idpf.org/2008/embedding", "http://ns.adobe.com/pdf/enc#RC"}
# Kinds of entries in tables of contents: names of chapters, printed pages.
_CHAPTER, _PRINTED = f"{headed('{}', 1)}\n\n", "[page {}]\n"
_CONTENTS = {"navPoint": _CHAPTER, "toc": _CHAPTER, "pageTarget": _PRINTED, "page-list": _PRINTED}
_ABOUT = {"title": "Title", "creator": "Author", "date": "Date"}
_PICTURES = (b"\xff\xd8", b"\x89PNG", b"GIF8")
_DRAWING = re.compile(rb"<(?:img|image|svg)[\s/>]", re.IGNORECASE)
_RESAVE_FIX = "Convert it with Calibre or another program, then open the result."


@dataclass(slots=True)
class _Book:
    """The book as its package has it: chapters in reading order, authors, what stands before elements by their id."""

    chapters: list[str] = field(default_factory=list)
    about: dict[str, str] = field(default_factory=dict)
    names: dict[str, dict[str, list[Block]]] = field(default_factory=dict)
    protected: set[str] = field(default_factory=set)


def open_epub(request: Request) -> Reader:
    """Open the book and find its chapters."""
    archive = Archive(request.open(), request.name)
    book = _open(archive, request)
    return Reader("epub", "chapter", _pages(archive, book, request.first), len(book.chapters))


def _pages(archive: Archive, book: _Book, first: int) -> Iterator[Page]:
    first_at: dict[str, int] = {}
    with archive:
        for number, member in enumerate(book.chapters, 1):
            earlier = first_at.setdefault(member, number)
            if number < first:
                continue
            if earlier < number:
                problem = f"chapter {number} is chapter {earlier} once more, and is read only there"
                yield Page(number, "", "repeated", problem)
            else:
                yield _read_chapter(archive, book, number, member)


def _read_chapter(archive: Archive, book: _Book, number: int, member: str) -> Page:
    if member in book.protected:
        return Page(number, "", "unreadable", f"chapter {number} is protected (DRM)")
    try:
        data = archive.read(member)
    except KeyError:
        return Page(number, "", "unreadable", f"chapter {number} is named in the book but missing from the file")
    except DocumentError as error:
        code = "too-complex" if error.code == "document-too-complex" else "unreadable"
        return Page(number, "", code, f"chapter {number} was given up: {error.what}")
    if data.startswith(_PICTURES):
        return Page(number, "", "scan", f"chapter {number} is an image without text")
    blocks = page_blocks(data, names=book.names.get(member, {}))[1]
    lost = tuple(what for block in blocks for what in block.lost)
    text = ""
    if any(block.text for block in blocks):
        about, book.about = book.about, {}  # stands before the first words of the book
        text = "".join(block.text for block in front_matter(about, blocks))
    elif _DRAWING.search(data):
        return Page(number, "", "scan", f"chapter {number} is an image without text")
    if text or lost:
        return Block(text, lost=lost).page(number, "chapter")
    return Page(number, "", "blank", f"chapter {number} is blank")


def _open(archive: Archive, request: Request) -> _Book:
    package = next((e.get("full-path", "") for e in archive.read_xml(_CONTAINER).iterfind(".//{*}rootfile")), "")
    if package not in archive:
        raise DocumentError("the book has no table of its parts", where=request.name, fix=_RESAVE_FIX)
    book, root = _Book(), archive.read_xml(package)
    for element in (e for metadata in root.iterfind(".//{*}metadata") for e in metadata.iter() if e.text):
        if name := _ABOUT.get(tag(element)):
            is_more = name == "Author" and name in book.about
            text = element.text or ""
            book.about[name] = f"{book.about[name]}; {text}" if is_more else book.about.get(name, text)
    manifest: dict[str, str] = {}
    contents: list[str] = []
    for item in root.iterfind(".//{*}item"):
        member, kind = resolve(package, unquote(item.get("href", ""))), item.get("media-type", "").lower()
        if member:
            manifest[item.get("id", "")] = member
        if member and (kind == _CONTENTS_TYPE or "nav" in item.get("properties", "").split()):
            contents.append(member)
    spine = [item.get("idref", "") for item in root.iterfind(".//{*}itemref")]
    book.chapters = [manifest.get(item, f"\0{item}") for item in spine]  # one without a file is told to be missing
    if not manifest.keys() & spine:
        raise DocumentError("the book has no chapters", where=request.name, fix=_RESAVE_FIX)
    if len(book.chapters) > MAX_PAGES:
        what = f"the book names {len(book.chapters):,} chapters; the limit is {MAX_PAGES:,}"
        raise DocumentTooLarge(what, where=request.name, fix=_RESAVE_FIX)
    book.protected = _protected(archive)
    if book.protected & {"", package} or book.protected.issuperset(book.chapters):
        fix = "Open it with the reader of the shop that sold it; only an unprotected copy can be read here."
        raise UnsupportedDocument("the book is protected (DRM)", where=request.name, fix=fix)
    for member in contents:
        with suppress(KeyError, DocumentError):  # without it chapters lack their names, and no text is lost
            _read_contents(archive, member, book)
    return book


def _read_contents(archive: Archive, member: str, book: _Book) -> None:
    """Names and printed pages of places: those of an EPUB 2, then those of an EPUB 3 that are not among them."""
    found: list[tuple[str, str, str]] = []
    if member.lower().endswith(".ncx"):
        for point in archive.read_xml(member).iter():
            if (kind := tag(point)) in _CONTENTS:
                label = next(("".join(e.itertext()) for e in point if tag(e) == "navLabel"), "")
                found.append((kind, next((e.get("src", "") for e in point if tag(e) == "content"), ""), label))
    else:
        for nav in LexborHTMLParser(archive.read(member).decode("utf-8", "replace")).css("nav"):
            if (kind := nav.attributes.get("epub:type") or "") in _CONTENTS:
                found += [(kind, a.attributes.get("href") or "", a.text()) for a in nav.css("a[href]")]
    for kind, target, label in found:
        place, _, name = unquote(target).partition("#")
        text, is_heading = _CONTENTS[kind].format(" ".join(label.split())), kind in ("navPoint", "toc")
        if label.strip() and (chapter := resolve(member, place)):
            blocks = book.names.setdefault(chapter, {}).setdefault(name, [])
            if all(block.is_heading != is_heading for block in blocks):
                blocks.append(Block(text, is_heading))


def _protected(archive: Archive) -> set[str]:
    """Members that cannot be read without a key; "" where the book does not say which."""
    if _ENCRYPTION not in archive:
        return set()
    found: set[str] = set()
    # A method outside of an entry for one member is that of the whole book.
    root = archive.read_xml(_ENCRYPTION)
    for entry in [*root.iterfind(".//{*}EncryptedData")] or [root]:
        if {one.get("Algorithm", "") for one in entry.iterfind(".//{*}EncryptionMethod")} - _FONT_OBFUSCATION:
            found |= {unquote(one.get("URI", "")) for one in entry.iterfind(".//{*}CipherReference")} or {""}
    return found
