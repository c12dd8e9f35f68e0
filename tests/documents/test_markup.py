"""What HTML and EPUB files carry beside plain words: numbers, notes, forms, tables, what is hidden or lost."""

from __future__ import annotations

import pytest

from ondevice.documents import read
from ondevice.documents.formats.html import html_blocks
from ondevice.errors import EmptyDocument, UnsupportedDocument
from tests.builders.documents import make_epub


def page(markup: str | bytes) -> str:
    return "".join(block.text for block in html_blocks(markup)).strip()


def lost(markup: str) -> list[str]:
    return [what for block in html_blocks(markup) for what in block.lost]


def text_of(document) -> str:
    return "".join(page.text for page in document.pages).strip()


# HTML


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("10<sup>6</sup> cycles, 10<sup>-6</sup> m, 5 m<sup>2</sup>", "10^6 cycles, 10^-6 m, 5 m^2"),
        (
            "euros<sup>2</sup>, the end.<sup>3</sup> as said<a role=doc-noteref href=#n>4</a>",
            "euros[2], the end.[3] as said[4]",
        ),
        ("9<sup><a href='#n'>1</a></sup> boats on the 5<sup>th</sup>", "9[1] boats on the 5th"),
        ("H<sub>2</sub>O, x<sub>i</sub>, 10<sub>2</sub>, log<sub>10</sub>100", "H2O, x_i, 10_2, log_10 100"),
        ("a <del>90</del><ins>75</ins> and <s>1</s>2", "a ~~90~~ 75 and ~~1~~ 2"),
        ("<ruby>漢<rp>(</rp><rt>kan</rt><rp>)</rp></ruby>字", "漢 (kan)字"),
    ],
)
def test_no_number_becomes_another_by_its_place_on_the_line(markup: str, text: str) -> None:
    assert page(markup) == text


@pytest.mark.parametrize(
    ("formula", "text"),
    [
        ("<mfrac><mn>12</mn><mn>34</mn></mfrac>", "12/34"),
        ("<mfrac><mrow><mi>a</mi><mo>+</mo><mi>b</mi></mrow><mi>c</mi></mfrac>", "(a+b)/c"),
        ("<mn>3</mn><mfrac><mn>1</mn><mn>2</mn></mfrac>", "3 1/2"),
        ("<mroot><mn>8</mn><mn>3</mn></mroot><mo>+</mo><msqrt><mi>x</mi><mo>+</mo><mn>1</mn></msqrt>", "³√8+√(x+1)"),
        ("<munderover><mo>∑</mo><mrow><mi>i</mi><mo>=</mo><mn>1</mn></mrow><mi>n</mi></munderover><msub><mi>x</mi><mi>i</mi></msub>",
         "∑_(i=1)^n x_i"),
        ("<mfrac linethickness=0><mi>n</mi><mi>k</mi></mfrac>", "(n over k)"),
        ("<mfenced open='[' close=']'><mn>1</mn><mn>2</mn></mfenced>", "[1, 2]"),
        ("<mtable><mtr><mtd>1</mtd><mtd>2</mtd></mtr><mtr><mtd>3</mtd><mtd>4</mtd></mtr></mtable>", "[1, 2; 3, 4]"),
        ("<mi>sin</mi><mo>&#x2061;</mo><mi>x</mi><mn>2</mn><mo>&#x2062;</mo><mn>3</mn>", "sin x 2·3"),
        ("<semantics><mn>7</mn><annotation>seven</annotation></semantics>", "7"),
    ],
)  # fmt: skip
def test_formulas_stand_on_one_line(formula: str, text: str) -> None:
    assert page(f"<math>{formula}</math>") == text


def test_a_formula_that_a_page_holds_twice_is_read_once() -> None:
    shown = "<span class=katex-html aria-hidden=true><span>12</span><span>34</span></span>"
    assert (
        page(f"<span class=katex><math><mfrac><mn>12</mn><mn>34</mn></mfrac></math>{shown}</span> a year")
        == "12/34 a year"
    )
    assert page("<span class=MathJax>1x</span><script type='math/tex'>x^1</script>") == "x^1"


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("<ol><li>a<li>b</ol><ol start=5><li>c</ol>", "1. a\n2. b\n5. c"),
        ("<ol reversed><li>a<li>b</ol>", "2. a\n1. b"),
        ("<ol type=a><li>x<li value=5>y<li type=I>z</ol>", "a. x\ne. y\nVI. z"),
        ("<ol><li><p>a</p><ul><li>b</ul><li></li><li>c</ol>", "1. a\n- b\n3. c"),
        ("<ol start=x><li>a</ol><ol start=99999999999><li>b</ol>", "1. a\n999999. b"),
    ],
)
def test_numbers_of_lists_are_those_that_browsers_show(markup: str, text: str) -> None:
    assert page(markup).replace("\n\n", "\n") == text


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("<tr><td rowspan=2>2024<td>10<tr><td>11", "2024 | 10\n2024 | 11"),
        ("<tr><th rowspan=0>Y<td>1<tr><td>2<tr><td>3", "Y | 1\nY | 2\nY | 3"),
        ("<tr><th>Item<th colspan=2>2023<tr><td>Ships<td>4<td>", "Item | 2023\nShips | 4"),
        ("<tr><th>Item<th colspan=2>2023<tr><td>Ships<td>4<td>5", "Item | 2023 | 2023\nShips | 4 | 5"),
        ("<caption>Dues</caption><tr><th colspan=2>All<tr><td>a<td>1", "Dues\nAll\na | 1"),
        ("<tr><td>77<td><table><tr><td>pump<td>2<tr><td>valve<td>5</table>", "77 | pump: 2; valve: 5"),
        ("<tr><td><h1>Site</h1><p>text</p><tr><td><table><tr><td>b<td>c</table>", "## Site\n\ntext\n\nb | c"),
        ("<tr><td colspan=99999>x<td>y", "x" + " | x" * 99 + " | y"),
    ],
)
def test_cells_that_span_rows_and_columns_are_told_in_each(markup: str, text: str) -> None:
    assert page(f"<table>{markup}</table>") == text


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        (  # as in the accounts of companies: a mark beside each number, and columns that only part others
            "<tr><td><td>&nbsp;<th colspan=2>2021<td><td>&nbsp;<th colspan=2>2020<td>"
            "<tr><td>Cash<td><td>$<td>16,058<td><td><td>$<td>5,993<td>"
            "<tr><td>Deficit<td><td><td>(33<td>)<td><td>$<td>(35<td>)",
            " | 2021 | 2020\nCash | $16,058 | $5,993\nDeficit | (33) | $(35)",
        ),
        (f"<tr><td>Plan<th colspan=2>{'Award ' * 20}<tr><td>A<td>$<td>3", f"Plan | {('Award ' * 20).strip()}\nA | $3"),
        ("<tr><td>Share<td>4<td>%<tr><td>Rest<td>96<td>%", "Share | 4%\nRest | 96%"),
        ("<tr><th>Fee<td>$<td colspan=2>5<tr><th>Tax<td><td>1<td>2", "Fee | $5 | $5\nTax | 1 | 2"),
        ("<tr><td>$<td>paid<td>a<tr><td>€<td>due<td>b", "$ | paid | a\n€ | due | b"),
        ("<tr><td>1<td>1<td>2<tr><td>3<td>3<td>4", "1 | 1 | 2\n3 | 3 | 4"),
        ("<tr><td>Name<td><tr><td>Date<td>", "Name |\nDate |"),
    ],
)
def test_marks_stand_beside_their_numbers_and_columns_without_text_go(markup: str, text: str) -> None:
    found = "".join(block.text for block in html_blocks(f"<p>Text<table>{markup}</table>".encode()))
    assert found.removeprefix("Text\n").strip("\n") == text


@pytest.mark.parametrize("cells", ["<td>$<td>5" * 10_000, "<td>(" * 20_000, "<td>5<td>)" * 10_000, "<td>" * 20_000])
def test_a_row_of_many_cells_takes_no_time(cells: str) -> None:
    assert page(f"<p>Text<table><tr>{cells}<tr><td>1</table>").endswith("1")


def test_forms_keep_what_was_filled_in() -> None:
    assert page("<label>Country <select><option>Norway<option selected>Malta</select></label>") == "Country Malta"
    assert page("<select><option>Norway<option>Malta</select>") == "Norway / Malta"
    assert page(
        "<input type=checkbox checked> paid <input type=radio> later <input value=4b> <input type=hidden value=q>"
    ) == ("[x] paid [ ] later 4b")
    assert page("<textarea>two\nlines</textarea><button>Send</button>") == "two lines Send"


@pytest.mark.parametrize(
    "markup",
    [
        "<nav><a>Home</a><main><p>The deposit is 300 euros.</main>",
        "<h1>Dues</h1><nav><a>Home</a><div>The deposit is 300 euros, to be paid on the first day of each month.</div>",
        "<p>Dues<button>Pay<div><p>The deposit is 300 euros.</div>",
        "<object data=a><select><option selected>a<option>b<p>The deposit is 300 euros.",
        "<title>Dues<body><p>The deposit is 300 euros.",
        "<p>Dues<!-- menu <p>The deposit is 300 euros.",
        "<noscript><p>The deposit is 300 euros.",
        "<p>Dues</body></html><p>The deposit is 300 euros.",
        "<svg><text>The deposit is 300 euros.</text></svg>",
    ],
)
def test_an_element_without_an_end_loses_nothing(markup: str) -> None:
    assert "The deposit is 300 euros" in page(markup)


def test_boxes_side_by_side_stay_apart_and_words_whole() -> None:
    assert (
        page("<a href=#>Depart</a><a href=#>Arrive</a><time>1 March</time><meter>7</meter>")
        == "Depart Arrive 1 March 7"
    )
    assert page("<span>Total</span><span>45</span> <span>H</span><span>arbour</span> un<a href=#>bel</a>able") == (
        "Total 45 Harbour unbelable"
    )

    assert page("these ascended<span>90</span> <span>025</span>Testing <span>A</span>4 1<span>st</span>") == (
        "these ascended 90 025 Testing A4 1st"
    )


def test_targets_of_links_are_kept_unless_they_are_too_many() -> None:
    assert page(
        "<a href='mailto:a@example.org'>the office</a>, <a href='https://example.org/x'>form</a>, <a href=b>b</a>"
    ) == ("the office (a@example.org), form (https://example.org/x), b")
    assert page("<a href='https://example.org/'>example.org</a>") == "example.org"
    many = "".join(f"<a href='https://example.org/{number}'>w</a> " for number in range(101))
    assert "(" not in page(many)
    assert lost(many) == ["target of links"] * 101


@pytest.mark.parametrize(
    ("markup", "what"),
    [
        ("<p>a<p hidden>SECRET", "passage of hidden text"),
        ("<p>a<p style='display: none'>SECRET", "passage of hidden text"),
        ("a<table><tr style='display:none'><td>SECRET<td>1", "passage of hidden text"),
        ("<table><tr><td>a<td hidden>SECRET", "passage of hidden text"),
        ("<p>a<span style='font-size:0'>SECRET</span>", "passage of hidden text"),
        ("<style>.x{display:none}</style><p>a<p class=x>SECRET", "passage of hidden text"),
        ("<p>a<dialog>SECRET</dialog>", "passage of hidden text"),
        ("<p>a<div id=cookie-banner>SECRET</div>", "banner about cookies"),
        ("<p>a<img src=x>", "picture without a description"),
        ("<p>a<video>SECRET</video>", "video"),
    ],
)
def test_what_nobody_sees_or_no_text_shows_is_left_out_and_counted(markup: str, what: str) -> None:
    assert page(markup) == "a"
    assert lost(markup) == [what]


def test_what_a_style_sheet_shows_again_or_hides_on_paper_is_read() -> None:
    style = ".x{display:none} .x.on{display:block} @media print{.y{display:none}} p:nth-of-foo({display:none}"
    assert page(f"<style>{style}</style><p class='x on'>one<p class=y>two") == "one\n\ntwo"
    assert lost("<p>a<img alt=''><nav><a>Home</a></nav>") == []
    assert page("<p>a<img alt='a mast'>") == "a[Picture: a mast]"


def test_a_page_that_is_nothing_but_a_menu_is_read(tmp_path) -> None:
    assert page("<nav><a>Home</a></nav>") == "Home"
    (tmp_path / "a.html").write_text("<p hidden>SECRET")
    with pytest.raises(EmptyDocument, match="1 passage of hidden text"):
        read(tmp_path / "a.html")


def test_what_a_page_says_of_itself_stands_before_it() -> None:
    head = "<title>Dues  2025</title><meta name=author content='N. Nobody'><meta name=date content=2025-03-01>"
    assert (
        page(f"<head>{head}</head><p>They rise.")
        == "Title: Dues 2025\nAuthor: N. Nobody\nDate: 2025-03-01\n\nThey rise."
    )
    assert page("<title>Dues 2025</title><h1>Dues: 2025</h1>") == "## Dues: 2025"


@pytest.mark.parametrize(
    ("label", "encoding"),
    [("iso-8859-1", "utf-8"), ("windows-1251", "utf-8"), ("iso-8859-1", "cp1252"), ("utf-8", "utf-16"), ("", "utf-8")],
)
def test_encodings_are_what_browsers_take_them_for(label: str, encoding: str) -> None:
    assert page(f"<meta charset='{label}'><p>“Café”: 20 €".encode(encoding)) == "“Café”: 20 €"


def test_bytes_that_are_not_what_the_page_says_are_counted(tmp_path) -> None:
    assert page("<meta charset=gb2312><p>\u9555".encode("gb18030")) == "\u9555"
    (tmp_path / "a.html").write_bytes(b"<meta charset=euc-jp><p>one \xff\xff two")
    (only,) = read(tmp_path / "a.html").pages
    assert (only.problem_code, only.text.count("\ufffd")) == ("partial", 2)
    assert only.problem == "section 1 is read without 2 bytes of another encoding than EUC_JP, shown as \ufffd"


def test_a_page_that_does_not_say_its_encoding_is_guessed_and_that_is_said(tmp_path) -> None:
    text = "Портовый налог за май составляет триста рублей. Начало работы в понедельник."
    (tmp_path / "a.html").write_bytes(f"<p>{text}".encode("cp1251"))
    (only,) = read(tmp_path / "a.html").pages
    assert (only.text.strip(), only.problem_code) == (text, "guessed")
    assert "CP1251, which is a guess" in only.problem


def test_a_wide_table_loses_no_column(tmp_path) -> None:
    cells = [f"{number}." for number in range(130)]
    assert page(f"<table><tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr></table>") == " | ".join(cells)


# EPUB


def book(tmp_path, chapters: dict[str, str], contents: str = "", about: str = "", **more: str):
    """A book with contents in the way of EPUB 2, and what its package says of it."""
    items = "".join(f'<item id="{name}" href="{name}" media-type="application/xhtml+xml"/>' for name in chapters)
    spine = "".join(f'<itemref idref="{name}"/>' for name in chapters)
    package = (
        f'<package><metadata xmlns:dc="http://purl.org/dc/elements/1.1/">{about}</metadata><manifest>{items}'
        '<item id="ncx" href="toc.ncx" media-type="application/x-dtbncx+xml"/>'
        '<item id="nav" href="nav.xhtml" properties="nav" media-type="application/xhtml+xml"/>'
        f"</manifest><spine>{spine}</spine></package>"
    )
    members = {"OEBPS/book.opf": package, "OEBPS/toc.ncx": f"<ncx>{contents}</ncx>"} | more
    return read(make_epub(tmp_path / "a.epub", chapters, **members))


def point(kind: str, name: str, target: str) -> str:
    return f"<{kind}><navLabel><text>{name}</text></navLabel><content src='{target}'/></{kind}>"


def test_chapters_have_the_names_that_the_book_gives_them(tmp_path) -> None:
    chapters = {
        "a.xhtml": "<title>a</title><p>Cover</p>",
        "b.xhtml": "<p>It came.</p><p id=two>It went.</p>",
        "c.xhtml": "<h1>Part III:<br>The Calm</h1><p>All was quiet.</p>",
    }
    contents = point("navPoint", "One: The Gale", "b.xhtml") + point("navPoint", "Two", "b.xhtml#two")
    contents += point("navPoint", "Part III The Calm", "c.xhtml") + point("pageTarget", "12", "b.xhtml#two")
    pages = [page.text for page in book(tmp_path, chapters, contents).pages]
    assert pages == [
        "Cover\n\n",
        "## One: The Gale\n\nIt came.\n\n## Two\n\n[page 12]\nIt went.\n\n",
        "## Part III: The Calm\n\nAll was quiet.\n\n",
    ]


def test_contents_of_an_epub_3_and_damaged_ones(tmp_path) -> None:
    nav = "<nav epub:type='toc'><ol><li><a href='a.xhtml'>One</a></ol></nav>"
    assert text_of(book(tmp_path, {"a.xhtml": "<p>text"}, "<broken", **{"OEBPS/nav.xhtml": nav})) == "## One\n\ntext"


def test_a_chapter_of_which_nothing_is_seen_says_so(tmp_path) -> None:
    document = book(tmp_path, {"a.xhtml": "<p hidden>SECRET", "b.xhtml": "<p>seen"})
    assert [page.problem for page in document.pages] == ["chapter 1 is read without 1 passage of hidden text", ""]


def test_title_and_authors_of_a_book_stand_before_its_first_words(tmp_path) -> None:
    about = "<dc:title>Tales</dc:title><dc:creator>A. One</dc:creator><dc:creator>B. Two</dc:creator>"
    document = book(tmp_path, {"a.xhtml": "<img src='c.png'/>", "b.xhtml": "<p>Text"}, about=about)
    assert [page.text for page in document.pages] == ["", "Title: Tales\nAuthor: A. One; B. Two\n\nText\n\n"]


def test_entities_and_letters_as_they_are_in_xhtml(tmp_path) -> None:
    head = '<?xml version="1.0"?><!DOCTYPE html [<!ENTITY port "Port &#38; Pier">'
    chapter = f"{head}]><html><title/><body><a id='x'/><p>The &port; &eacute; <![CDATA[1 < 2]]></p><p/></body></html>"
    assert text_of(book(tmp_path, {"a.xhtml": chapter})) == "The Port & Pier é 1 < 2"
    bomb = f"{head}<!ENTITY b '&port;&port;'>]><html><p>&b;</p></html>"
    assert text_of(book(tmp_path, {"a.xhtml": bomb})) == "&port;&port;", "one level of them"


def test_what_is_protected_in_a_book_does_not_close_the_rest(tmp_path) -> None:
    entry = (
        '<EncryptedData><EncryptionMethod Algorithm="http://www.w3.org/2001/04/xmlenc#aes256-cbc"/>'
        '<CipherData><CipherReference URI="OEBPS/{}"/></CipherData></EncryptedData>'
    )
    chapters = {"a.xhtml": "<p>Open", "b.xhtml": "<p>Closed"}

    def with_protected(*names: str):
        protection = f"<encryption>{''.join(map(entry.format, names))}</encryption>"
        return book(tmp_path, chapters, **{"META-INF/encryption.xml": protection})

    assert text_of(with_protected("pic.jpg")) == "Open\n\nClosed"
    assert [page.problem for page in with_protected("b.xhtml").pages] == ["", "chapter 2 is protected (DRM)"]
    with pytest.raises(UnsupportedDocument, match="DRM"):
        with_protected("a.xhtml", "b.xhtml")
