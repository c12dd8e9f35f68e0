"""Documents spoilt at random, by a seed: bytes of any, tags of mark-up, objects of a PDF, members of an archive."""

from __future__ import annotations

import io
import quopri
import random
import re
import warnings
import zipfile
import zlib
from collections.abc import Callable

_TEXT = "The lamp was lit at dusk, écru and bright, and burned until the morning."
_NUMBERS = (
    b"0",
    b"1",
    b"-1",
    b"2",
    b"7",
    b"255",
    b"65536",
    b"2147483648",
    b"-9223372036854775809",
    b"1e400",
    b"9" * 300,
)
_NAMES = (
    b"/Kids", b"/Parent", b"/Contents", b"/Font", b"/Length", b"/FlateDecode", b"/LZWDecode", b"/ASCII85Decode",
    b"/RunLengthDecode", b"/DCTDecode", b"/Identity-H", b"/Type0", b"/Type3", b"/ObjStm", b"/Encrypt", b"/#00#zz", b"/",
)  # fmt: skip
_REPEATS = (2, 2, 3, 40, 900, 20_000)
_MOST_BYTES = 2_000_000  # of one document
_WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_RELATED = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_RELATION = (
    '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="r1" '
    f'Type="{_RELATED}/{{}}" Target="{{}}"/></Relationships>'
)
_CONTENT_TYPES = (
    '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"><Default Extension="xml" '
    'ContentType="application/xml"/><Default Extension="rels" '
    'ContentType="application/vnd.openxmlformats-package.relationships+xml"/></Types>'
)
_OFFICE = (
    'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main" '
    'xmlns:p="http://schemas.openxmlformats.org/presentationml/2006/main" '
    f'xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main" xmlns:r="{_RELATED}"'
)
_OPEN = " ".join(
    f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"' for name in ("office", "text", "table", "style")
)
_CONTAINER = (
    '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles><rootfile full-path="b/book.opf"/>'
    "</rootfiles></container>"
)
_PACKAGE = (
    '<package xmlns="http://www.idpf.org/2007/opf"><manifest><item id="a" href="a.xhtml" '
    'media-type="application/xhtml+xml"/><item id="b" href="b.xhtml" media-type="application/xhtml+xml"/></manifest>'
    '<spine><itemref idref="a"/><itemref idref="b"/></spine></package>'
)
_PAGE = (
    "<html lang='en'><head><title>Lamp</title><style>p{color:red}</style></head><body><h1>A lamp</h1><p>{}</p>"
    "<ul><li>one<li>two</ul><table><tr><td>1</td><td colspan='2'>2</td></tr></table>"
    "<pre>a\n b</pre><script>x</script></body></html>"
).replace("{}", _TEXT, 1)

Spoil = Callable[[bytes, random.Random], bytes]


def sound(kind: str) -> bytes:
    """A whole small document of one of `KINDS`."""
    made = {"pdf": _pdf, "docx": _docx, "epub": _epub, "pptx": _pptx, "xlsx": _xlsx, "odt": _odt, "rtf": _rtf}
    return (made | {"eml": _eml, "zip": _zip}).get(kind, lambda: _marked_up(kind))()


KINDS = ("pdf", "pdf", "pdf", "docx", "epub", "html", "md", "txt", "pptx", "xlsx", "odt", "rtf", "eml", "zip")


def spoilt(kind: str, rng: random.Random) -> bytes:
    """A document of that kind with one to four things wrong with it."""
    return spoil(kind, sound(kind), rng)


def spoil(kind: str, data: bytes, rng: random.Random) -> bytes:
    """Do one to four things to a document of that kind, which may be spoilt already."""
    for _ in range(rng.choice((1, 1, 2, 4))):
        data = rng.choice(_WAYS[kind])(data, rng)[:_MOST_BYTES]
    return data


# -- whole ones --------------------------------------------------------------------------------------


def _pdf() -> bytes:
    line = b"BT /F1 12 Tf 1 0 0 1 50 700 Tm (" + _TEXT.encode("cp1252") + b") Tj 0 -14 Td [(lit) -250 (at)] TJ ET"
    packed = zlib.compress(b"q " + line + b" Q /Im0 Do")
    names = b"<48> <49> <0041>"
    to_unicode = b"1 begincodespacerange <00> <ff> endcodespacerange 1 beginbfrange " + names + b" endbfrange"
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R /Names << /Dests 2 0 R >> >>",
        b"<< /Type /Pages /Kids [4 0 R 8 0 R] /Count 2 /MediaBox [0 0 595 842] >>",
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding /ToUnicode 6 0 R >>",
        b"<< /Type /Page /Parent 2 0 R /Contents 5 0 R /Resources << /Font << /F1 3 0 R >> "
        b"/XObject << /Im0 7 0 R >> >> >>",
        b"<< /Length %d /Filter /FlateDecode >>\nstream\n%s\nendstream" % (len(packed), packed),
        b"<< /Length %d >>\nstream\n%s\nendstream" % (len(to_unicode), to_unicode),
        b"<< /Type /XObject /Subtype /Form /BBox [0 0 1 1] /Resources << /XObject << /Im0 7 0 R >> >> /Length 7 >>\n"
        b"stream\nq 1 Q \nendstream",
        b"<< /Type /Page /Parent 2 0 R /Rotate 90 /Contents [5 0 R 5 0 R] "
        b"/Resources << /Font << /F1 3 0 R >> /XObject << /Im0 7 0 R >> >> >>",
    ]
    data, offsets = bytearray(b"%PDF-1.7\n"), []
    for number, body in enumerate(objects, 1):
        offsets.append(len(data))
        data += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    start = len(data)
    data += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    data += b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    data += b"trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, start)
    return bytes(data)


def _docx() -> bytes:
    run = f"<w:r><w:t>{_TEXT}</w:t><w:tab/><w:br/></w:r>"
    table = f"<w:tbl><w:tr><w:tc><w:p>{run}</w:p></w:tc></w:tr></w:tbl>"
    body = f"<w:p><w:pPr><w:pStyle w:val='Heading1'/></w:pPr>{run}</w:p>{table}"
    document = f'<?xml version="1.0"?><w:document xmlns:w="{_WORD}"><w:body>{body}</w:body></w:document>'
    return _zipped([("[Content_Types].xml", b"<Types/>"), ("word/document.xml", document.encode())])


def _epub() -> bytes:
    return _zipped(
        [
            ("mimetype", b"application/epub+zip"),
            ("META-INF/container.xml", _CONTAINER.encode()),
            ("b/book.opf", _PACKAGE.encode()),
            ("b/a.xhtml", _PAGE.encode()),
            ("b/b.xhtml", _PAGE.encode()),
        ]
    )


def _pptx() -> bytes:
    text = f"<p:sp><p:txBody><a:p><a:r><a:t>{_TEXT}</a:t></a:r></a:p></p:txBody></p:sp>"
    slide = f"<p:sld {_OFFICE}><p:cSld><p:spTree>{text}</p:spTree></p:cSld></p:sld>"
    main = f'<p:presentation {_OFFICE}><p:sldIdLst><p:sldId id="256" r:id="r1"/></p:sldIdLst></p:presentation>'
    return _office("ppt/presentation.xml", main, "slide", "slides/slide1.xml", slide)


def _xlsx() -> bytes:
    cell = f'<c r="A1" t="inlineStr"><is><t>{_TEXT}</t></is></c><c r="B1"><v>12.5</v></c>'
    sheet = f"<worksheet {_OFFICE}><sheetData><row r='1'>{cell}</row></sheetData></worksheet>"
    main = f'<workbook {_OFFICE}><sheets><sheet name="A" sheetId="1" r:id="r1"/></sheets></workbook>'
    return _office("xl/workbook.xml", main, "worksheet", "worksheets/sheet1.xml", sheet)


def _office(member: str, main: str, kind: str, target: str, part: str) -> bytes:
    folder, _, name = member.rpartition("/")
    members = {
        "[Content_Types].xml": _CONTENT_TYPES,
        "_rels/.rels": _RELATION.format("officeDocument", member),
        member: main,
        f"{folder}/_rels/{name}.rels": _RELATION.format(kind, target),
        f"{folder}/{target}": part,
    }
    return _zipped([(name, text.encode()) for name, text in members.items()])


def _odt() -> bytes:
    table = (
        f"<table:table><table:table-row><table:table-cell><text:p>{_TEXT}</text:p></table:table-cell></table:table-row>"
    )
    body = (
        f"<text:h>{_TEXT}</text:h><text:list><text:list-item><text:p>one</text:p></text:list-item></text:list>{table}"
    )
    document = (
        f"<office:document-content {_OPEN}><office:body>{body}</table:table></office:body></office:document-content>"
    )
    return _zipped([("mimetype", b"application/vnd.oasis.opendocument.text"), ("content.xml", document.encode())])


def _rtf() -> bytes:
    text = _TEXT.replace("é", r"\'e9")
    changed = rf"{{\strike 90}}{{\footnote {text}}}\par \trowd a\cell\row"
    return rf"{{\rtf1\ansi{{\fonttbl{{\f0 A;}}}}\f0 {text} {changed}}}".encode()


def _eml() -> bytes:
    body = quopri.encodestring(_TEXT.encode())
    part = b"Content-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n" + body
    head = b"From: a@example.org\r\nSubject: =?utf-8?q?=C3=A9cru?=\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n"
    return head + b"--b\r\n" + part + b"\r\n--b\r\nContent-Type: text/html\r\n\r\n<p>more</p>\r\n--b--\r\n"


def _zip() -> bytes:
    return _zipped([("a.md", _TEXT.encode()), ("b.docx", _docx()), ("c.eml", _eml())])


def _marked_up(kind: str) -> bytes:
    if kind == "html":
        return _PAGE.encode()
    return f"# A lamp\n\n{_TEXT}\n\n- one\n- two\n\n```\ncode\n```\n\f\n| a | b |\n|---|---|\n| 1 | 2 |\n".encode()


def _zipped(members: list[tuple[str, bytes]]) -> bytes:
    out = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        warnings.simplefilter("ignore")  # of two members of one name
        for name, data in members:
            archive.writestr(name, data)
    return out.getvalue()


# -- ways to spoil them ------------------------------------------------------------------------------


def _bytes(data: bytes, rng: random.Random) -> bytes:
    if not data:
        return b"\x00"
    at, size = rng.randrange(len(data)), rng.choice((1, 1, 4, 60, 2000))
    piece = data[at : at + size]
    flipped = bytes(byte ^ (1 << rng.randrange(8)) for byte in piece)
    instead = rng.choice(
        (b"", flipped, bytes(len(piece)), rng.randbytes(size), piece * rng.choice(_REPEATS), b"\xff\xfe")
    )
    end = len(data) if rng.random() < 0.1 else at + size  # cut off
    return data[:at] + instead[:_MOST_BYTES] + data[end:]


def _numbers(data: bytes, rng: random.Random) -> bytes:
    return _one(rb"-?\d+(?:\.\d+)?", data, rng, lambda _: rng.choice(_NUMBERS))


def _tags(data: bytes, rng: random.Random) -> bytes:
    def change(tag: bytes) -> bytes:
        name = re.sub(rb"[^\w:]", b"", tag)[:20] or b"p"
        return rng.choice(
            (
                b"",
                tag * rng.choice(_REPEATS),
                b"<" + name + b">",
                b"</" + name + b">",
                (b"<" + name + b">") * rng.choice(_REPEATS),
                tag[:-1] + b" x='" + b"&amp;" * rng.choice(_REPEATS) + b"'>",
                b"<!DOCTYPE x [<!ENTITY a 'b'><!ENTITY c '&a;&a;&a;'>]>" + tag + b"&c;&#0;&#x110000;&nosuch;",
                b"<![CDATA[" + tag + b"]]>",
                b"<!--" + tag,
                b"<?x " + tag,
                tag.replace(b"w:", b"v:").upper(),
                b"<" + b"a" * rng.choice(_REPEATS) + b">",
            )
        )

    return _one(rb"<[^<>]*>", data, rng, change)


def _objects(data: bytes, rng: random.Random) -> bytes:
    def reference(_: bytes) -> bytes:
        return b"%d 0 R" % rng.choice((0, 1, 2, 3, 4, 5, 7, 8, 99, 10**9))

    def name(_: bytes) -> bytes:
        return rng.choice(_NAMES)

    def word(found: bytes) -> bytes:
        return rng.choice(
            (b"", found * 2, b"endobj", b"stream\n", b"<<" * rng.choice(_REPEATS), b"[" * rng.choice(_REPEATS))
        )

    pattern, change = rng.choice(
        (
            (rb"\d+ \d+ R", reference),
            (rb"/[A-Za-z0-9]+", name),
            (rb"endobj|endstream|stream|xref|trailer|startxref|obj|>>|<<|\]", word),
            (rb"\((?:[^()\\]|\\.)*\)", lambda text: rng.choice((b"(", b"(\\", b"<zz>", text * rng.choice(_REPEATS)))),
            (
                rb"\b(?:Tf|Tj|TJ|Td|Tm|BT|ET|Do|q|Q|cm)\b",
                lambda op: rng.choice((b"", b"Do", b"BT ", (op + b" ") * 900)),
            ),
        )
    )
    return _one(pattern, data, rng, change)


def _members(data: bytes, rng: random.Random) -> bytes:
    """One member of an archive gone, renamed, there twice, very large, or itself spoilt."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = [(info.filename, archive.read(info)) for info in archive.infolist()]
    except Exception:  # it is no archive any more
        return _bytes(data, rng)
    if not members:
        return data
    index = rng.randrange(len(members))
    name, held = members[index]
    names = ("../../x", "/etc/passwd", "word/document.xml", "b/a.xhtml", "é" * 200, " ", "a" * 60_000)
    match rng.choice(("drop", "rename", "twice", "large", "inside", "inside", "inside")):
        case "drop":
            del members[index]
        case "rename":
            members[index] = (rng.choice(names), held)
        case "twice":
            members += [(name, _tags(held, rng))] * rng.choice((1, 5, 900))
        case "large":
            members[index] = (name, held + b" " * rng.choice((10**6, 3 * 10**7)))
        case _:
            members[index] = (name, rng.choice((_tags, _tags, _bytes, _numbers))(held, rng)[:_MOST_BYTES])
    return _zipped(members)


def _one(pattern: bytes, data: bytes, rng: random.Random, change: Callable[[bytes], bytes]) -> bytes:
    """One place that the pattern matches, changed."""
    found = list(re.finditer(pattern, data))
    if not found:
        return _bytes(data, rng)
    at = rng.choice(found)
    return data[: at.start()] + change(at[0])[:_MOST_BYTES] + data[at.end() :]


_WAYS: dict[str, tuple[Spoil, ...]] = {
    "pdf": (_objects, _objects, _objects, _numbers, _numbers, _bytes),
    "docx": (_members, _members, _members, _bytes),
    "epub": (_members, _members, _members, _bytes),
    "html": (_tags, _tags, _tags, _bytes),
    "pptx": (_members, _members, _bytes),
    "xlsx": (_members, _members, _bytes),
    "odt": (_members, _members, _bytes),
    "zip": (_members, _bytes),
    "rtf": (_bytes, _numbers),
    "eml": (_bytes, _bytes, _tags),
    "md": (_bytes, _numbers),
    "txt": (_bytes,),
}
