"""EPUB books: the chapters in the order of the spine.

A book may name a chapter more than once, which its format forbids: it is read where it stands first, and the places
where it comes again keep their number and say so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import unquote

from ondevice.documents.formats.archive import Archive, resolve
from ondevice.documents.formats.decode import Decoder
from ondevice.documents.formats.html import declared_encoding, html_blocks
from ondevice.documents.formats.reader import Reader, Request
from ondevice.documents.types import Page
from ondevice.documents.worker.limits import MAX_PAGES
from ondevice.errors import DocumentError, DocumentTooLarge, UnsupportedDocument

_CONTAINER = "META-INF/container.xml"
_ENCRYPTION = "META-INF/encryption.xml"
_MARKUP_TYPES = frozenset({"application/xhtml+xml", "text/html", "application/x-dtbook+xml", ""})
# These only hide fonts from copying; the text is open.
_FONT_OBFUSCATION = ("http://www.idpf.org/2008/embedding", "http://ns.adobe.com/pdf/enc#RC")
_IMAGE = re.compile(r"<(?:img|image|svg)[\s/>]", re.IGNORECASE)
_RESAVE_FIX = "Convert it with Calibre or another program, then open the result."


def open_epub(request: Request) -> Reader:
    """Open the book and find its chapters."""
    archive = Archive(request.open(), request.name)
    _refuse_protected(archive, request)
    chapters = _spine(archive, request)
    return Reader("epub", "chapter", _pages(archive, chapters, request.first), len(chapters))


def _pages(archive: Archive, chapters: list[str], first: int) -> Iterator[Page]:
    first_at: dict[str, int] = {}
    with archive:
        for number, member in enumerate(chapters, 1):
            earlier = first_at.setdefault(member, number)
            if number < first:
                continue
            if earlier < number:
                problem = f"chapter {number} is chapter {earlier} once more, and is read only there"
                yield Page(number, "", "repeated", problem)
            else:
                yield _read_chapter(archive, number, member)


def _read_chapter(archive: Archive, number: int, member: str) -> Page:
    try:
        data = archive.read(member)
    except KeyError:
        return Page(number, "", "unreadable", f"chapter {number} is named in the book but missing from the file")
    except DocumentError as error:
        code = "too-complex" if error.code == "document-too-complex" else "unreadable"
        return Page(number, "", code, f"chapter {number} was given up: {error.what}")
    decoder = Decoder(declared_encoding(data))
    markup = "".join(decoder.decode([data]))
    text = "".join(block.text for block in html_blocks(markup))
    if decoder.is_damaged and "\ufffd" in text:
        return Page(number, text, "unreadable", f"some bytes of chapter {number} are damaged and shown as \ufffd")
    if text:
        return Page(number, text)
    if _IMAGE.search(markup):
        return Page(number, "", "scan", f"chapter {number} is an image without text")
    return Page(number, "", "blank", f"chapter {number} is blank")


def _spine(archive: Archive, request: Request) -> list[str]:
    """Members of the chapters in reading order."""
    package = next(
        (e.get("full-path", "") for e in archive.read_xml(_CONTAINER).iter() if _tag(e.tag) == "rootfile"), ""
    )
    if package not in archive:
        raise DocumentError("the book has no table of its parts", where=request.name, fix=_RESAVE_FIX)
    manifest: dict[str, str] = {}
    spine: list[str] = []
    for element in archive.read_xml(package).iter():
        if _tag(element.tag) == "item" and element.get("media-type", "").lower() in _MARKUP_TYPES:
            member = resolve(package, unquote(element.get("href", "")))
            if member:
                manifest[element.get("id", "")] = member
        elif _tag(element.tag) == "itemref":
            spine.append(element.get("idref", ""))
    chapters = [manifest[item] for item in spine if item in manifest]
    if not chapters:
        raise DocumentError("the book has no chapters", where=request.name, fix=_RESAVE_FIX)
    if len(chapters) > MAX_PAGES:
        what = f"the book names {len(chapters):,} chapters; the limit is {MAX_PAGES:,}"
        raise DocumentTooLarge(what, where=request.name, fix=_RESAVE_FIX)
    return chapters


def _refuse_protected(archive: Archive, request: Request) -> None:
    if _ENCRYPTION not in archive:
        return
    methods = (
        e.get("Algorithm", "") for e in archive.read_xml(_ENCRYPTION).iter() if _tag(e.tag) == "EncryptionMethod"
    )
    if any(method not in _FONT_OBFUSCATION for method in methods):
        fix = "Open it with the reader of the shop that sold it; only an unprotected copy can be read here."
        raise UnsupportedDocument("the book is protected (DRM)", where=request.name, fix=fix)


def _tag(name: str) -> str:
    """Without its namespace, which books often get wrong."""
    return name.rpartition("}")[2]
