"""The table of the formats: which file reads a kind of document, and how such documents are known and called."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Format:
    """One kind of document.

    Attributes:
        kind: of `Reader.kind`.
        reader: module in this folder and its function; imported only when a file needs it.
        title: what a file of this kind is called in a sentence.
        suffixes: of its names.
        member: what the name of one member of its ZIP archive begins with; "": it is no archive.
        starts: its first bytes, one of them.
        is_text: it is plain text, and only the name tells it from other kinds of text.
    """

    kind: str
    reader: tuple[str, str]
    title: str
    suffixes: tuple[str, ...]
    member: str = ""
    starts: tuple[bytes, ...] = ()
    is_text: bool = False

    @property
    def label(self) -> str:
        """Its title by itself, as in a list."""
        title = self.title.removeprefix("an ").removeprefix("a ")
        return title[:1].upper() + title[1:]


_PICTURES = (".png", ".jpg", ".jpeg", ".tif", ".tiff")
_PICTURE_STARTS = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"II*\x00", b"MM\x00*")
# Of the archives the first one that fits is taken, and of the texts the last one where no name fits.
FORMATS = (
    Format("pdf", ("pdf", "open_pdf"), "a PDF", (".pdf",)),
    Format("epub", ("epub", "open_epub"), "an EPUB book", (".epub",), member="META-INF/container.xml"),
    Format("docx", ("docx", "open_docx"), "a Word document", (".docx", ".docm", ".dotx"), member="word/"),
    Format("pptx", ("pptx", "open_pptx"), "a presentation", (".pptx", ".pptm", ".ppsx"), member="ppt/"),
    Format("xlsx", ("sheets", "open_sheets"), "a workbook", (".xlsx", ".xlsm", ".xls"), member="xl/workbook.xml"),
    Format("odt", ("odt", "open_odt"), "an OpenDocument file", (".odt", ".ott", ".odp", ".ods"), member="content.xml"),
    Format("zip", ("opening", "open_collection"), "a ZIP archive", (".zip",)),
    Format("rtf", ("rtf", "open_rtf"), "a rich text (RTF)", (".rtf",), starts=(b"{\\rtf",)),
    Format("image", ("picture", "open_picture"), "a picture", _PICTURES, starts=_PICTURE_STARTS),
    Format("html", ("html", "open_html"), "a web page (HTML)", (".html", ".htm", ".xhtml"), is_text=True),
    Format("md", ("plain", "open_markdown"), "Markdown text", (".md", ".markdown"), is_text=True),
    Format("csv", ("rows", "open_rows"), "a table (CSV)", (".csv", ".tsv"), is_text=True),
    Format("jsonl", ("json_text", "open_records"), "records (JSON)", (".jsonl", ".ndjson", ".json"), is_text=True),
    Format("ipynb", ("json_text", "open_notebook"), "a notebook", (".ipynb",), is_text=True),
    Format("srt", ("subtitles", "open_subtitles"), "subtitles", (".srt", ".vtt"), is_text=True),
    Format("eml", ("mail", "open_mail"), "mail", (".eml", ".mbox"), is_text=True),
    Format("mht", ("mail", "open_mail"), "a saved web page (MHT)", (".mht", ".mhtml"), is_text=True),
    Format("txt", ("plain", "open_text"), "plain text", (".txt", ".text", ".log"), is_text=True),
)
SUFFIXES = tuple(suffix for one in FORMATS for suffix in one.suffixes)
BY_KIND = {one.kind: one for one in FORMATS}
BY_SUFFIX = {suffix: one for one in FORMATS for suffix in one.suffixes}
