"""The reader that a file needs, by its first bytes. The name only decides between kinds of text."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

from ondevice.documents.formats.decode import byte_order_mark
from ondevice.errors import EmptyDocument, UnsupportedDocument
from ondevice.files import shown_name

_HEAD_BYTES = 65_536
_ZIP = (b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08")
_OLE2 = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_IMAGE_FIX = "Run OCR first (for example ocrmypdf), then open the result."
_UNPACK_FIX = "Unpack it and open the documents one by one."
_EXPORT_FIX = "Open it in its own program, save it as PDF or text, then open that."
_OFFICE_FIX = "Open it in Word or LibreOffice, save it without a password as .docx or PDF, then open that."

# (first bytes, what the file is, what to do)
_UNREADABLE: tuple[tuple[bytes, str, str], ...] = (
    (b"\x89PNG\r\n\x1a\n", "a PNG image", _IMAGE_FIX),
    (b"\xff\xd8\xff", "a JPEG image", _IMAGE_FIX),
    (b"GIF8", "a GIF image", _IMAGE_FIX),
    (b"II*\x00", "a TIFF image", _IMAGE_FIX),
    (b"MM\x00*", "a TIFF image", _IMAGE_FIX),
    (_OLE2, "an old Office file, or one protected with a password", _OFFICE_FIX),
    (b"{\\rtf", "an RTF file", _OFFICE_FIX),
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
# (member that must be there, what the archive is, what to do)
_ARCHIVES: tuple[tuple[str, str, str], ...] = (
    ("xl/workbook.xml", "an Excel workbook", "Save it as CSV or PDF, then open that."),
    ("xl/workbook.bin", "an Excel workbook", "Save it as CSV or PDF, then open that."),
    ("ppt/presentation.xml", "a PowerPoint presentation", "Export it as PDF, then open that."),
    ("content.xml", "an OpenDocument file", "Save it as .docx or PDF, then open that."),
)
# What a name claims. A name that is not here claims nothing.
_CLAIMS = {".pdf": "pdf", ".docx": "docx", ".epub": "epub"} | dict.fromkeys(
    (".txt", ".text", ".log", ".csv", ".tsv", ".md", ".markdown", ".html", ".htm", ".xhtml"), "text"
)
_KINDS = {".md": "md", ".markdown": "md", ".html": "html", ".htm": "html", ".xhtml": "html"}
_TITLES = {"pdf": "a PDF", "docx": "a Word document", "epub": "an EPUB book", "text": "plain text"}
_SUFFIXES = {"pdf": ".pdf", "docx": ".docx", "epub": ".epub", "text": ".txt"}
_HTML = re.compile(
    rb"\s*(?:<\?xml[^>]*>\s*)?(?:<!--.*?-->\s*)*<(?:!doctype\s+html|html)[\s>]", re.IGNORECASE | re.DOTALL
)
_CONTROLS = re.compile(rb"[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f\x7f]")


def sniff(path: str) -> str:
    """The kind of reader for the file: `pdf`, `docx`, `epub`, `html`, `md` or `txt`."""
    name = shown_name(Path(path))
    with open(path, "rb") as file:
        head = file.read(_HEAD_BYTES)
    if not head:
        raise EmptyDocument("the file has 0 bytes", where=name, fix="Get the file again: nothing of it has arrived.")
    suffix = Path(path).suffix.lower()
    family = _family(head, path, suffix)
    claim = _CLAIMS.get(suffix, family)
    if claim != family:
        raise UnsupportedDocument(
            f"the name says {_TITLES[claim]}, but the content is {_TITLES[family]}",
            where=name,
            fix=f"If you trust the file, rename it so that it ends in {_SUFFIXES[family]}, then open it again.",
        )
    if family != "text":
        return family
    return _KINDS.get(suffix) or ("html" if _HTML.match(head) and not suffix else "txt")


def refuse_binary(head: bytes, name: str) -> None:
    """Raise unless the bytes are the beginning of a text."""
    if head.startswith(b"%PDF-") or head.startswith(_ZIP):
        what = "a PDF" if head.startswith(b"%PDF-") else "a ZIP archive or Office file"
        raise UnsupportedDocument(
            f"the stream is {what}, not text", where=name, fix="Save it to a file and open that file."
        )
    for magic, what, fix in _UNREADABLE:
        if head.startswith(magic):
            raise UnsupportedDocument(f"this is {what}, not a document with text", where=name, fix=fix)
    if _is_binary(head):
        raise UnsupportedDocument("this is binary data, not text", where=name, fix=_EXPORT_FIX)


def _family(head: bytes, path: str, suffix: str) -> str:
    name = shown_name(Path(path))
    if head.startswith(_ZIP):
        return _archive_family(path, name)
    # Mail programs and web servers put junk before the header; a text about PDFs only mentions it further on.
    start = head[:1024].find(b"%PDF-")
    if start == 0 or (start > 0 and (suffix == ".pdf" or _is_binary(head))):
        return "pdf"
    if suffix == ".pdf" and b"startxref" in head:
        return "pdf"  # damaged at the front; the parser may still repair it
    refuse_binary(head, name)
    return "text"


def _archive_family(path: str, name: str) -> str:
    try:
        with zipfile.ZipFile(path) as archive:
            members = set(archive.namelist())
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise UnsupportedDocument(
            "the file is damaged: its table of contents cannot be read", where=name, fix="Get the file again."
        ) from error
    if "META-INF/container.xml" in members:
        return "epub"
    if "[Content_Types].xml" in members and any(member.startswith("word/") for member in members):
        return "docx"
    for member, what, fix in _ARCHIVES:
        if member in members:
            raise UnsupportedDocument(f"this is {what}, which no reader here understands", where=name, fix=fix)
    raise UnsupportedDocument("this is a ZIP archive, not a document", where=name, fix=_UNPACK_FIX)


def _is_binary(head: bytes) -> bool:
    """Control bytes give binary data away. Text may hold some; text that is sound UTF-8 may hold many."""
    _, encoding = byte_order_mark(head)
    if encoding.startswith("utf-16") or encoding.startswith("utf-32"):
        return False
    pairs = max(len(head) // 2, 1)
    zeros = head[::2].count(0), head[1::2].count(0)
    if max(zeros) > 0.7 * pairs and min(zeros) < 0.05 * pairs:
        return False  # UTF-16 without a mark
    share = len(_CONTROLS.findall(head)) / len(head)
    try:
        head[:-3].decode("utf-8")
    except UnicodeDecodeError as error:
        # The cut at the end of the head may go through a character.
        return share > 0.02 and error.start < len(head) - 8
    return share > 0.3
