"""The reader that a file needs, by its first bytes. The name only decides between kinds of text."""

from __future__ import annotations

import re
import zipfile

from ondevice.documents.formats.decode import byte_order_mark
from ondevice.documents.formats.guess import CONTROLS, wide_encoding
from ondevice.documents.formats.reader import OCR_FIX, Request
from ondevice.documents.formats.table import BY_KIND, BY_SUFFIX, FORMATS
from ondevice.errors import EmptyDocument, UnsupportedDocument

_HEAD_BYTES = 65_536
_ZIP = (b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08")
_OLE2 = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_UNPACK_FIX = "Unpack it and open the documents one by one."
_MAIL_FIX = "Open it in Outlook, save it as text, as a web page (MHT) or as PDF, then open that."
_EXPORT_FIX = "Open it in its own program, save it as PDF or text, then open that."
_OFFICE_FIX = "Open it in Word or LibreOffice, save it without a password as .docx or PDF, then open that."

# (first bytes, what the file is, what to do)
_UNREADABLE: tuple[tuple[bytes, str, str], ...] = (
    (b"GIF8", "a GIF image", OCR_FIX),
    (_OLE2, "an old Office file, or one protected with a password", _OFFICE_FIX),
    (b"\x1f\x8b", "a gzip archive", _UNPACK_FIX),
    (b"BZh", "a bzip2 archive", _UNPACK_FIX),
    (b"\xfd7zXZ\x00", "an xz archive", _UNPACK_FIX),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive", _UNPACK_FIX),
    (b"Rar!\x1a\x07", "a RAR archive", _UNPACK_FIX),
    (b"\x28\xb5\x2f\xfd", "a Zstandard archive", _UNPACK_FIX),
    (b"AT&TFORM", "a DjVu file", _EXPORT_FIX),
    (b"ITSF", "a Windows help file", _EXPORT_FIX),
    (b"SQLite format 3\x00", "a SQLite database", "Export the tables as CSV, then open that."),
    (b"\x7fELF", "a program", "Choose a document."),
)
_HTML = re.compile(
    rb"\s*(?:<\?xml[^>]*>\s*)?(?:<!--.*?-->\s*)*<(?:!doctype\s+html|html)[\s>]", re.IGNORECASE | re.DOTALL
)


def sniff(request: Request) -> str:
    """The kind of the document, as in `table.FORMATS`."""
    with request.open() as file:
        head = file.read(_HEAD_BYTES)
    if not head:
        fix = "Get the file again: nothing of it has arrived."
        raise EmptyDocument("the file has 0 bytes", where=request.name, fix=fix)
    found = BY_KIND[_kind(head, request)]
    if found.kind == "txt" and _HTML.match(head):
        found = BY_KIND["html"]
    claim = BY_SUFFIX.get(request.suffix, found)
    if claim.kind == "zip" and found.member:
        return found.kind  # as browsers name what they have loaded
    if found.is_text and claim.is_text:
        return claim.kind
    if claim != found:
        what = f"the name says {claim.title}, but the content is {found.title}"
        fix = f"If you trust the file, rename it so that it ends in {found.suffixes[0]}, then open it again."
        raise UnsupportedDocument(what, where=request.name, fix=fix)
    return found.kind


def refuse_binary(head: bytes, name: str) -> None:
    """Raise unless the bytes are the beginning of a text."""
    if head.startswith(b"%PDF-") or head.startswith(_ZIP):
        what = "a PDF" if head.startswith(b"%PDF-") else "a ZIP archive or Office file"
        fix = "Save it to a file and open that file."
        raise UnsupportedDocument(f"the stream is {what}, not text", where=name, fix=fix)
    if head.startswith(_OLE2) and name.lower().endswith(".msg"):
        raise UnsupportedDocument("this is mail of Outlook, not a document with text", where=name, fix=_MAIL_FIX)
    for magic, what, fix in _UNREADABLE:
        if head.startswith(magic):
            raise UnsupportedDocument(f"this is {what}, not a document with text", where=name, fix=fix)
    if _is_binary(head):
        raise UnsupportedDocument("this is binary data, not text", where=name, fix=_EXPORT_FIX)


def _kind(head: bytes, request: Request) -> str:
    """The kind by its first bytes; `txt` for every kind of text."""
    if head.startswith(_ZIP):
        return _archive_kind(request)
    if head.startswith(_OLE2) and request.suffix == ".xls":
        return "xlsx"
    # Mail programs and web servers put junk before the header; a text about PDFs only mentions it further on.
    start = head[:1024].find(b"%PDF-")
    if start == 0 or (start > 0 and (request.suffix == ".pdf" or _is_binary(head))):
        return "pdf"
    if request.suffix == ".pdf" and b"startxref" in head:
        return "pdf"  # damaged at the front; the parser may still repair it
    if found := next((one.kind for one in FORMATS if head.startswith(one.starts)), ""):
        return found
    refuse_binary(head, request.name)
    return "txt"


def _archive_kind(request: Request) -> str:
    try:
        with request.open() as file, zipfile.ZipFile(file) as archive:
            members = archive.namelist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        what = "the file is damaged: its table of contents cannot be read"
        raise UnsupportedDocument(what, where=request.name, fix="Get the file again.") from error
    held = (one.kind for one in FORMATS if one.member and any(name.startswith(one.member) for name in members))
    return next(held, "zip")


def _is_binary(head: bytes) -> bool:
    """Control bytes give binary data away. Text may hold some; text that is sound UTF-8 may hold many."""
    _, encoding = byte_order_mark(head)
    if encoding.startswith(("utf-16", "utf-32")) or wide_encoding(head):
        return False
    share = len(CONTROLS.findall(head)) / len(head)
    try:
        head[:-3].decode("utf-8")
    except UnicodeDecodeError as error:
        # The cut at the end of the head may go through a character.
        return share > 0.02 and error.start < len(head) - 8
    return share > 0.3
