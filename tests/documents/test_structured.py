"""HTML, EPUB and Word files: what a reader sees comes out, in order; what would blow up does not."""

from __future__ import annotations

import zipfile

import docx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ondevice.documents import read
from ondevice.documents.formats import archive
from ondevice.documents.formats.epub import open_epub
from ondevice.documents.formats.html import html_blocks
from ondevice.documents.formats.reader import Request
from ondevice.errors import DocumentError, DocumentTooComplex, DocumentTooLarge, EmptyDocument, UnsupportedDocument
from tests.builders.documents import WORD, make_epub, make_raw_docx, make_repeating_epub, make_zip, paragraph


def text_of(document) -> str:
    return "".join(page.text for page in document.pages)


def as_text(markup: str) -> str:
    return "".join(block.text for block in html_blocks(markup))


# HTML


def test_html_blocks_tables_and_noise() -> None:
    markup = """<html><head><title>T</title><style>p {}</style><script>if (a < b) {}</script></head><body>
      <nav><ul><li>Home</li></ul></nav><h1>Harbour &amp; ferry</h1><p>One <b>bold</b>
      word&nbsp;here.<br>Next line</p><ul><li>first</li><li>second</li></ul>
      <table><tr><th>Town</th><th>Time</th></tr><tr><td><p>Tornio</p></td><td>18:45</td></tr></table>
      <pre>a  b\n  c</pre></body></html>"""
    assert as_text(markup) == (
        "Title: T\n\n## Harbour & ferry\n\nOne bold word\xa0here.\nNext line\n\n- first\n- second\n"
        "Town | Time\nTornio | 18:45\n\na  b\n  c\n\n"
    )


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("<div>" * 20_000 + "deep" + "</div>" * 20_000 + "<p>after", "deep\nafter\n"),
        ("<p>one<p>two", "one\ntwo\n"),
        ("<nav><nav>menu</nav>menu</nav>text", "text\n"),
        ("<script/>text", "text\n"),
        ("a<script>x</script>b", "ab\n"),
        ("<b>a</b><i>b</i> c", "ab c\n"),
        ("<table><tfoot><tr><td>sum<td>2<tbody><tr><td>a<td>2</table>", "a | 2\nsum | 2\n"),
        ("&lt;b&gt; &#0;&#x202e;&eacute;", "<b> \ufffd\xe9\n"),
        ("no markup at all", "no markup at all\n"),
        ("<table><tr><td>a<table><tr><td>b</td><td>c</td></tr></table></td></tr></table>after", "a\nb | c\nafter\n"),
    ],
)
def test_html_oddities(markup: str, text: str) -> None:
    assert as_text(markup).replace("\n\n", "\n") == text


@given(st.text(st.sampled_from("<>/!-& ;#xpdiv\"'=\n\x00")))
def test_any_markup_gives_text(markup: str) -> None:
    assert "\x00" not in as_text(markup)


def test_html_file_sections_and_charset(tmp_path) -> None:
    path = tmp_path / "page.html"
    body = "<h1>A</h1><p>Öl für Łódź</p><h2>B</h2><p>" + "word " * 3000 + "</p>"
    path.write_bytes(f'<meta charset="iso-8859-2"><body>{body}'.replace("ü", "u").encode("iso8859_2"))
    document = read(path)
    pages = list(document.pages)
    assert (document.kind, document.unit) == ("html", "section")
    assert pages[0].text == "## A\n\nÖl fur Łódź\n\n"
    assert pages[1].text.startswith("### B\n")
    assert text_of(document).count("word") == 3000
    assert max(len(page.text) for page in pages) <= 6000


def test_html_without_text(tmp_path) -> None:
    path = tmp_path / "page.html"
    path.write_text("<script>only()</script>")
    with pytest.raises(EmptyDocument):
        read(path)


# EPUB


def test_epub_chapters_in_spine_order(tmp_path) -> None:
    document = read(
        make_epub(
            tmp_path / "book.epub",
            {
                "text/two.xhtml": "<?xml version='1.0' encoding='utf-8'?><html><h1>Zwei</h1><p>Grüße</p></html>",
                "one.xhtml": "<html><body><p>Erstes</p></body></html>",
                "cover.xhtml": "<html><body><img src='c.png'/></body></html>",
                "gone.xhtml": "",
            },
        )
    )
    assert (document.kind, document.unit, document.num_pages) == ("epub", "chapter", 4)
    assert [page.text for page in document.pages] == ["## Zwei\n\nGrüße\n\n", "Erstes\n\n", "", ""]
    assert [page.problem_code for page in document.pages] == ["", "", "scan", "unreadable"]


def test_a_book_reads_chapters_of_any_type_and_says_what_is_no_text_or_missing(tmp_path) -> None:
    path = make_epub(
        tmp_path / "book.epub",
        {
            "a.html": "<p>old</p>",
            "b.svg": "<svg><text>drawn</text></svg>",
            "c.jpg": b"\xff\xd8\xff\xe0",
            "d": "<p>d</p>",
        },
    )
    with zipfile.ZipFile(path) as file:
        package = file.read("OEBPS/book.opf").decode().replace("application/xhtml+xml", "text/x-oeb1-document")
        files = {name: file.read(name) for name in file.namelist()}
    package = package.replace('idref="c3"', 'idref="other"')
    document = read(make_zip(tmp_path / "b.epub", files | {"OEBPS/book.opf": package}))
    assert [page.text.strip() for page in document.pages] == ["old", "drawn", "", ""]
    assert [page.problem_code for page in document.pages] == ["", "", "scan", "unreadable"]


def test_epub_bomb_costs_one_chapter_only(tmp_path) -> None:
    path = make_epub(tmp_path / "book.epub", {"a.xhtml": b"<p>" + b"x" * 30_000_000, "b.xhtml": "<p>fine</p>"})
    assert path.stat().st_size < 100_000
    document = read(path)
    assert [page.problem_code for page in document.pages] == ["too-complex", ""]


def test_a_chapter_that_a_book_names_again_is_read_once(tmp_path) -> None:
    path = make_repeating_epub(tmp_path / "book.epub", "<p>" + "word " * 190_000, num_places=1000)
    assert path.stat().st_size < 12_000
    document = read(path)
    assert (document.num_pages, len(text_of(document))) == (1000, len("word " * 190_000) + 1)
    assert [page.problem_code for page in document.pages] == ["", *["repeated"] * 999]
    assert document.pages[2].problem == "chapter 3 is chapter 1 once more, and is read only there"


def test_a_lost_worker_does_not_make_a_repeated_chapter_come_back(tmp_path) -> None:
    path = make_repeating_epub(tmp_path / "book.epub", "<p>text</p>", num_places=4, num_chapters=2)
    pages = list(open_epub(Request(str(path), first=3)).pages)
    assert [(page.number, page.problem_code) for page in pages] == [(3, "repeated"), (4, "repeated")]


def test_a_book_of_too_many_chapters_is_refused_with_the_number(tmp_path) -> None:
    path = make_repeating_epub(tmp_path / "book.epub", "<p>text</p>", num_places=100_001, num_chapters=50)
    with pytest.raises(DocumentTooLarge, match=r"names 100,001 chapters; the limit is 100,000 \(book.epub\)"):
        read(path)


def test_epub_entities_protection_and_paths(tmp_path) -> None:
    container = (
        '<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><container><rootfile full-path="&b;"/></container>'
    )
    with pytest.raises(DocumentError, match="EntitiesForbidden"):
        read(make_epub(tmp_path / "entities.epub", {"a": "x"}, **{"META-INF/container.xml": container}))
    protection = '<encryption><EncryptionMethod Algorithm="http://www.w3.org/2001/04/xmlenc#aes128-cbc"/></encryption>'
    with pytest.raises(UnsupportedDocument, match="DRM"):
        read(make_epub(tmp_path / "drm.epub", {"a": "x"}, **{"META-INF/encryption.xml": protection}))
    with pytest.raises(DocumentError, match="no chapters"):
        read(make_epub(tmp_path / "paths.epub", {"../../../etc/passwd": "<p>x</p>"}))


@pytest.mark.parametrize(
    ("reference", "member"),
    [
        ("a.html", "OEBPS/a.html"),
        ("../a.html#part", "a.html"),
        ("../../a.html", None),
        ("http://example.org/a", None),
        ("file:///etc/passwd", None),
    ],
)
def test_references_stay_in_the_archive(reference: str, member: str | None) -> None:
    assert archive.resolve("OEBPS/book.opf", reference) == member


# Word


def test_word_file_in_reading_order(tmp_path) -> None:
    made = docx.Document()
    made.add_heading("Harbour", 1)
    made.add_paragraph("Before the table.")
    table = made.add_table(rows=2, cols=2)
    for index, text in enumerate(["Town", "Time", "Tornio", "18:45"]):
        table.cell(index // 2, index % 2).text = text
    made.add_paragraph("After the table.")
    made.add_heading("Ferry", 2)
    made.add_paragraph("The end.\tReally.")
    made.save(tmp_path / "a.docx")
    document = read(tmp_path / "a.docx")
    assert (document.kind, document.unit) == ("docx", "section")
    assert [page.text for page in document.pages] == [
        "Author: python-docx\nDate: 2013-12-23\n\n"
        "## Harbour\n\nBefore the table.\n\nTown | Time\nTornio | 18:45\n\nAfter the table.\n\n",
        "### Ferry\n\nThe end.\tReally.\n\n",
    ]


def test_word_text_that_is_easily_missed(tmp_path) -> None:
    body = (
        f"<w:sdt><w:sdtContent>{paragraph('in a content control')}</w:sdtContent></w:sdt>"
        f"<w:p><w:ins><w:r><w:t>inserted</w:t></w:r></w:ins><w:del><w:r><w:delText>deleted</w:delText></w:r></w:del></w:p>"
        f"<w:p><w:r><w:txbxContent>{paragraph('in a box')}</w:txbxContent></w:r></w:p>"
        f"<w:tbl><w:sdt><w:sdtContent><w:tr><w:tc>{paragraph('in a wrapped row')}</w:tc></w:tr></w:sdtContent></w:sdt>"
        "</w:tbl>"
    )
    notes = f"<w:footnotes {WORD}><w:footnote>{paragraph('a note')}</w:footnote></w:footnotes>"
    text = text_of(read(make_raw_docx(tmp_path / "a.docx", body, footnotes=notes)))
    for wanted in ("in a content control", "inserted", "in a box", "in a wrapped row", "Footnotes\n\na note"):
        assert text.count(wanted) == 1
    assert "deleted" not in text


def test_word_entities_bombs_and_depth(tmp_path) -> None:
    lol = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10))
    prolog = f'<!DOCTYPE x [<!ENTITY l0 "lol">{lol}]>'
    with pytest.raises(DocumentError, match="EntitiesForbidden"):
        read(make_raw_docx(tmp_path / "laughs.docx", paragraph("&l9;"), prolog))
    with pytest.raises(DocumentTooComplex, match="unpacks"):
        read(make_raw_docx(tmp_path / "bomb.docx", paragraph("x" * 30_000_000)))
    with pytest.raises(DocumentTooComplex, match="nested"):
        read(make_raw_docx(tmp_path / "deep.docx", "<w:sdt>" * 5000 + paragraph("x") + "</w:sdt>" * 5000))
    with pytest.raises(DocumentError, match="damaged"):
        read(make_raw_docx(tmp_path / "broken.docx", "<w:p>"))
    with pytest.raises(EmptyDocument):
        read(make_raw_docx(tmp_path / "empty.docx", ""))


def test_word_damage_after_the_body_does_not_cost_the_body(tmp_path) -> None:
    body = "".join(paragraph("word " * 500) for _ in range(5))
    document = read(make_raw_docx(tmp_path / "a.docx", body, footnotes="<w:footnotes>"))
    assert document.num_pages == 3
    assert text_of(document).count("word") == 2500
    assert document.pages[2].problem == (
        "section 3 is read without 1 part (footnotes.xml): a part of it is damaged [ParseError]"
    )


def test_announced_sizes_are_not_believed(tmp_path, monkeypatch) -> None:
    path = make_zip(tmp_path / "a.zip", {"a": b"0123456789" * 300})
    monkeypatch.setattr(archive, "MAX_MEMBER_BYTES", 1000)
    with archive.Archive(str(path), "a.zip") as opened, pytest.raises(DocumentTooComplex):
        opened.read("a")
    data = path.read_bytes()
    size = (3000).to_bytes(4, "little")
    path.write_bytes(data.replace(size, (999).to_bytes(4, "little")))
    with archive.Archive(str(path), "a.zip") as opened, pytest.raises(DocumentError):
        opened.read("a")


def test_total_and_number_of_members_are_limited(tmp_path, monkeypatch) -> None:
    path = make_zip(tmp_path / "a.zip", {str(number): b"0123456789" for number in range(30)})
    monkeypatch.setattr(archive, "MAX_TOTAL_BYTES", 25)
    with archive.Archive(str(path), "a.zip") as opened:
        assert opened.read("1") + opened.read("2") == b"01234567890123456789"
        with pytest.raises(DocumentTooComplex):
            opened.read("3")
    monkeypatch.setattr(archive, "MAX_ENTRIES", 29)
    with pytest.raises(DocumentTooComplex):
        archive.Archive(str(path), "a.zip")


def test_encrypted_member(tmp_path) -> None:
    path = make_zip(tmp_path / "a.zip", {"a": b"text"})
    with zipfile.ZipFile(path) as opened:
        start = opened.start_dir
    data = bytearray(path.read_bytes())
    data[start + 8] |= 1
    path.write_bytes(bytes(data))
    with archive.Archive(str(path), "a.zip") as locked, pytest.raises(UnsupportedDocument, match="encrypted"):
        locked.read("a")
