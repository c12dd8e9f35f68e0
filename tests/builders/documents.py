"""Small documents of every kind, sound and hostile, made on the spot."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path

from pypdf import PdfReader, PdfWriter

FONT = b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>"
# As TeX embeds them: two bytes a glyph (here the letter's own code), no space, and glyph 32 as wide as any letter.
GLYPH_FONT = (
    b"<< /Type /Font /Subtype /Type0 /BaseFont /AAAAAA+Serif /Encoding /Identity-H /DescendantFonts ["
    b"<< /Type /Font /Subtype /CIDFontType2 /BaseFont /AAAAAA+Serif /DW 500 /W [32 [564]] "
    b"/CIDSystemInfo << /Registry (Adobe) /Ordering (Identity) /Supplement 0 >> >>] >>"
)
IMAGE = (
    b"<< /Type /XObject /Subtype /Image /Width 1 /Height 1 /ColorSpace /DeviceGray /BitsPerComponent 8 /Length 1 >>"
    b"\nstream\n\x80\nendstream"
)
IMAGE_CONTENT = b"q 500 0 0 700 0 0 cm /Im0 Do Q"


def show(text: str) -> bytes:
    """Page content that shows one line."""
    return b"BT /F1 12 Tf 50 700 Td (" + text.encode("cp1252") + b") Tj ET"


def deflated(data: bytes) -> bytes:
    """A stream object, compressed."""
    packed = zlib.compress(data, 9)
    return b"<< /Length %d /Filter /FlateDecode >>\nstream\n%s\nendstream" % (len(packed), packed)


def plain(data: bytes) -> bytes:
    return b"<< /Length %d >>\nstream\n%s\nendstream" % (len(data), data)


def make_pdf(
    path: Path, *contents: bytes, stream=plain, font: bytes = FONT, catalog: bytes = b"", page: bytes = b"", more=()
) -> Path:
    """A PDF with one page for each content stream; every page may use the fonts /F1 and (bold) /F2 and the image /Im0.

    `catalog` and `page` are more entries of these; the objects of `more` have the numbers after those of the pages.
    """
    kids = b" ".join(b"%d 0 R" % (5 + 2 * index) for index in range(len(contents)))
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R " + catalog + b" >>",
        b"<< /Type /Pages /Kids [" + kids + b"] /Count %d >>" % len(contents),
        font,
        IMAGE,
    ]
    for index, content in enumerate(contents):
        objects.append(
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents %d 0 R "
            b"/Resources << /Font << /F1 3 0 R /F2 << /Type /Font /Subtype /Type1 /BaseFont /Helvetica-Bold >> >> "
            b"/XObject << /Im0 4 0 R >> /Properties << /Layer %d 0 R >> >> %s >>"
            % (6 + 2 * index, 5 + 2 * len(contents), page)
        )
        objects.append(stream(content))
    objects += more
    data, offsets = bytearray(b"%PDF-1.7\n"), []
    for number, body in enumerate(objects, 1):
        offsets.append(len(data))
        data += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    xref = len(data)
    data += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    data += b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    data += b"trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, xref)
    path.write_bytes(bytes(data))
    return path


def encrypt(source: Path, target: Path, user: str, owner: str = "owner", algorithm: str = "AES-256") -> Path:
    writer = PdfWriter(clone_from=PdfReader(source))
    writer.encrypt(user_password=user, owner_password=owner, algorithm=algorithm)
    writer.write(target)
    return target


def make_zip(path: Path, members: dict[str, str | bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def make_epub(path: Path, chapters: dict[str, str | bytes], **more: str | bytes) -> Path:
    """A book whose spine names `chapters` in order. `more` overrides members by name."""
    items = "".join(
        f'<item id="c{index}" href="{name}" media-type="application/xhtml+xml"/>' for index, name in enumerate(chapters)
    )
    spine = "".join(f'<itemref idref="c{index}"/>' for index in range(len(chapters)))
    members: dict[str, str | bytes] = {
        "mimetype": "application/epub+zip",
        "META-INF/container.xml": '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
        '<rootfile full-path="OEBPS/book.opf"/></rootfiles></container>',
        "OEBPS/book.opf": f'<package xmlns="http://www.idpf.org/2007/opf"><manifest>{items}</manifest>'
        f"<spine>{spine}</spine></package>",
    }
    members.update({f"OEBPS/{name}": data for name, data in chapters.items() if data != ""})
    members.update(more)
    return make_zip(path, members)


WORD = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'


def make_raw_docx(path: Path, body: str, prolog: str = "", **more: str | bytes) -> Path:
    """A Word file around the XML of a body."""
    members: dict[str, str | bytes] = {
        "[Content_Types].xml": "<Types/>",
        "word/document.xml": f"{prolog}<w:document {WORD}><w:body>{body}</w:body></w:document>",
    }
    members.update({f"word/{name}.xml": data for name, data in more.items()})
    return make_zip(path, members)


def paragraph(text: str) -> str:
    return f"<w:p><w:r><w:t>{text}</w:t></w:r></w:p>"


def make_repeating_epub(path: Path, markup: str, num_places: int, num_chapters: int = 1) -> Path:
    """A book of `num_chapters` equal chapters that names them in `num_places` places, under ids that do not repeat."""
    chapters = [f"c{number}.xhtml" for number in range(num_chapters)]
    items = "".join(
        f'<item id="i{place}" href="{chapters[place * 7919 % num_chapters]}" media-type="application/xhtml+xml"/>'
        for place in range(num_places)
    )
    spine = "".join(f'<itemref idref="i{place}"/>' for place in range(num_places))
    package = f"<package><manifest>{items}</manifest><spine>{spine}</spine></package>"
    return make_epub(path, dict.fromkeys(chapters, markup), **{"OEBPS/book.opf": package})


_OPEN = "http://schemas.openxmlformats.org"
_RELATED = f"{_OPEN}/officeDocument/2006/relationships"
_TYPES = (
    f'<Types xmlns="{_OPEN}/package/2006/content-types"><Default Extension="xml" ContentType="application/xml"/>'
    '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/></Types>'
)


def relations(*parts: tuple[str, str]) -> str:
    """Relations of a part to others, (type, target) each, as r1, r2 and so on."""
    rows = "".join(
        f'<Relationship Id="r{number}" Type="{_RELATED}/{kind}" Target="{target}"/>'
        for number, (kind, target) in enumerate(parts, 1)
    )
    return f'<Relationships xmlns="{_OPEN}/package/2006/relationships">{rows}</Relationships>'


def make_pptx(path: Path, *slides: str, notes: str = "", attributes: str = "") -> Path:
    """A presentation of slides with the XML of their shapes; notes are of the first, attributes of the last one."""
    names = f'xmlns:p="{_OPEN}/presentationml/2006/main" xmlns:a="{_OPEN}/drawingml/2006/main" xmlns:r="{_RELATED}"'
    listed = "".join(f'<p:sldId id="{255 + number}" r:id="r{number}"/>' for number in range(1, len(slides) + 1))
    parts = [("slide", f"slides/slide{number}.xml") for number in range(1, len(slides) + 1)]
    members: dict[str, str | bytes] = {
        "[Content_Types].xml": _TYPES,
        "_rels/.rels": relations(("officeDocument", "ppt/presentation.xml")),
        "ppt/presentation.xml": f"<p:presentation {names}><p:sldIdLst>{listed}</p:sldIdLst></p:presentation>",
        "ppt/_rels/presentation.xml.rels": relations(*parts),
    }
    for number, shapes in enumerate(slides, 1):
        more = attributes if number == len(slides) else ""
        tree = f"<p:cSld><p:spTree>{shapes}</p:spTree></p:cSld>"
        members[f"ppt/slides/slide{number}.xml"] = f"<p:sld {names} {more}>{tree}</p:sld>"
    if notes:
        members["ppt/slides/_rels/slide1.xml.rels"] = relations(("notesSlide", "../notesSlides/notes1.xml"))
        body = f'<p:sp><p:nvSpPr><p:nvPr><p:ph type="body"/></p:nvPr></p:nvSpPr>{slide_text(notes)}</p:sp>'
        members["ppt/notesSlides/notes1.xml"] = (
            f"<p:notes {names}><p:cSld><p:spTree>{body}</p:spTree></p:cSld></p:notes>"
        )
    return make_zip(path, members)


def slide_text(text: str, look: str = "") -> str:
    return f"<p:txBody><a:p><a:r><a:rPr {look}/><a:t>{text}</a:t></a:r></a:p></p:txBody>"


def make_xlsx(path: Path, sheets: dict[str, str], formats: tuple[str, ...] = (), hidden: str = "") -> Path:
    """A workbook with the XML inside of each sheet; a cell with s="1" has the first of the formats of numbers."""
    names = f'xmlns="{_OPEN}/spreadsheetml/2006/main" xmlns:r="{_RELATED}"'
    states = {hidden: 'state="hidden"'}
    listed = "".join(
        f'<sheet name="{name}" sheetId="{number}" r:id="r{number}" {states.get(name, "")}/>'
        for number, name in enumerate(sheets, 1)
    )
    parts = [("worksheet", f"worksheets/sheet{number}.xml") for number in range(1, len(sheets) + 1)]
    codes = "".join(f'<numFmt numFmtId="{164 + n}" formatCode="{code}"/>' for n, code in enumerate(formats))
    looks = "".join(f'<xf numFmtId="{164 + number}" applyNumberFormat="1"/>' for number in range(len(formats)))
    members: dict[str, str | bytes] = {
        "[Content_Types].xml": _TYPES,
        "_rels/.rels": relations(("officeDocument", "xl/workbook.xml")),
        "xl/workbook.xml": f"<workbook {names}><sheets>{listed}</sheets></workbook>",
        "xl/_rels/workbook.xml.rels": relations(*parts, ("styles", "styles.xml")),
        "xl/styles.xml": f'<styleSheet {names}><numFmts>{codes}</numFmts><cellXfs><xf numFmtId="0"/>{looks}</cellXfs>'
        "</styleSheet>",
    }
    for number, inside in enumerate(sheets.values(), 1):
        members[f"xl/worksheets/sheet{number}.xml"] = f"<worksheet {names}>{inside}</worksheet>"
    return make_zip(path, members)


def sheet_rows(*rows: str) -> str:
    """Rows of text, cells apart by spaces."""
    made = "".join(
        f'<row r="{number}">'
        + "".join(
            f'<c r="{chr(65 + column)}{number}" t="inlineStr"><is><t>{cell}</t></is></c>'
            for column, cell in enumerate(row.split())
        )
        + "</row>"
        for number, row in enumerate(rows, 1)
    )
    return f"<sheetData>{made}</sheetData>"


def make_odt(path: Path, body: str, styles: str = "", kind: str = "text") -> Path:
    """An OpenDocument file around the XML of a body."""
    names = " ".join(
        f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{full}:1.0"'
        for name, full in (
            ("office", "office"),
            ("text", "text"),
            ("table", "table"),
            ("style", "style"),
            ("draw", "drawing"),
        )
    )
    content = (
        f"<office:document-content {names}><office:automatic-styles>{styles}</office:automatic-styles>"
        f"<office:body><office:{kind}>{body}</office:{kind}></office:body></office:document-content>"
    )
    return make_zip(path, {"mimetype": f"application/vnd.oasis.opendocument.{kind}", "content.xml": content})
