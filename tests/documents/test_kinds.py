"""Presentations, workbooks, OpenDocument, rich text, mail, notebooks, tables and archives: what they say, in order."""

from __future__ import annotations

import json
import re
import sys
import zipfile
from email.message import EmailMessage
from pathlib import Path

import pytest
from PIL import Image, ImageDraw, ImageFont

from ondevice.cli.collection import files_in
from ondevice.documents import Page, read
from ondevice.documents.formats import picture
from ondevice.documents.formats.reader import Request
from ondevice.documents.formats.sheet_numbers import is_number, is_time, shown
from ondevice.documents.formats.table import FORMATS, SUFFIXES
from ondevice.documents.worker.outcome import Collected
from ondevice.errors import DocumentError, DocumentTooComplex, EmptyDocument, UnsupportedDocument
from tests.builders.documents import (
    make_odt,
    make_pdf,
    make_pptx,
    make_xlsx,
    make_zip,
    plain,
    relations,
    sheet_rows,
    show,
    slide_text,
)


def pages_of(path: Path) -> list[str]:
    return [page.text for page in read(path).pages]


def text_of(path: Path) -> str:
    return "".join(pages_of(path))


def test_every_kind_has_a_name_and_a_reader_of_its_own() -> None:
    assert len({one.kind for one in FORMATS}) == len(FORMATS)
    assert len(set(SUFFIXES)) == len(SUFFIXES)
    page = (Path(__file__).resolve().parents[2] / "docs" / "app.md").read_text(encoding="utf-8")
    assert [suffix for suffix in SUFFIXES if f"`{suffix}`" not in page] == []
    assert {one.label for one in FORMATS} >= {"PDF", "Word document", "EPUB book", "Plain text", "ZIP archive"}


# presentations


def test_slides_are_pages_with_notes_tables_and_descriptions(tmp_path) -> None:
    cell = "<a:tc{0}><a:txBody><a:p><a:r><a:t>{1}</a:t></a:r></a:p></a:txBody></a:tc>"
    rows = (
        cell.format(' gridSpan="2"', "Dues") + cell.format(' hMerge="1"', ""),
        cell.format("", "Visby") + cell.format("", "300"),
    )
    table = "".join(f"<a:tr>{row}</a:tr>" for row in rows)
    frame = "http://schemas.openxmlformats.org/drawingml/2006/table"
    first = (
        f"<p:sp>{slide_text('Harbour')}</p:sp><p:sp>{slide_text('ten to the')}</p:sp>"
        f"<p:graphicFrame><a:graphic><a:graphicData uri='{frame}'><a:tbl>{table}</a:tbl></a:graphicData></a:graphic>"
        "</p:graphicFrame><p:pic><p:nvPicPr><p:cNvPr id='9' name='P' descr='A red crane'/></p:nvPicPr></p:pic>"
    )
    second = f"<p:sp>{slide_text('90', 'strike=' + repr('sngStrike'))}</p:sp>"
    path = make_pptx(tmp_path / "a.pptx", first, "", second, notes="Say it slowly.", attributes="show='0'")
    document = read(path)
    pages = list(document.pages)
    assert (document.kind, document.unit, document.num_pages) == ("pptx", "slide", 3)
    for wanted in ("Harbour\n", "Dues | Dues\nVisby | 300\n", "[picture: A red crane]", "Notes:\nSay it slowly."):
        assert wanted in pages[0].text
    assert pages[1].problem == "slide 2 has no text"
    assert pages[2].text == "(hidden slide)\n~~90~~\n"


def test_slides_keep_fractions_and_say_which_pictures_are_not_read(tmp_path) -> None:
    half = "<m:f><m:num><m:r><m:t>12</m:t></m:r></m:num><m:den><m:r><m:t>34</m:t></m:r></m:den></m:f>"
    formula = f"<a14:m xmlns:a14='a14'><m:oMath xmlns:m='m'><m:r><m:t>r=</m:t></m:r>{half}</m:oMath></a14:m>"
    shape = f"<p:sp><p:txBody><a:p>{formula}</a:p></p:txBody></p:sp>"
    picture = "<p:pic><p:nvPicPr><p:cNvPr id='9' name='P'/></p:nvPicPr></p:pic>"
    first, second = read(make_pptx(tmp_path / "a.pptx", shape, picture)).pages
    assert first.text == "r=12/34\n"
    assert (second.text, second.problem) == ("", "slide 2 is read without 1 picture without a description")


def test_charts_of_slides_say_where_a_value_is_missing_and_which_group_is_meant(tmp_path) -> None:
    def points(kind: str, *held: tuple[int, str]) -> str:
        inside = "".join(f'<c:pt idx="{at}"><c:v>{text}</c:v></c:pt>' for at, text in held)
        return f"<c:{kind}>{inside}</c:{kind}>"

    levels = points("lvl", (0, "H1"), (1, "H2"), (2, "H1")) + points("lvl", (0, "2023"), (2, "2024"))
    values = f"<c:numRef>{points('numCache', (0, '7'), (2, '9'))}</c:numRef>"
    series = f"<c:cat><c:multiLvlStrRef><c:multiLvlStrCache>{levels}</c:multiLvlStrCache></c:multiLvlStrRef></c:cat>"
    series = f"<c:plotArea><c:barChart><c:ser>{series}<c:val>{values}</c:val></c:ser></c:barChart></c:plotArea>"
    space = "http://schemas.openxmlformats.org/drawingml/2006/chart"
    frame = (
        f"<a:graphic><a:graphicData uri='{space}'><c:chart xmlns:c='{space}' r:id='r1'/></a:graphicData></a:graphic>"
    )
    path = make_pptx(tmp_path / "a.pptx", f"<p:graphicFrame>{frame}</p:graphicFrame>")
    with zipfile.ZipFile(path, "a") as file:
        file.writestr(
            "ppt/charts/chart1.xml", f"<c:chartSpace xmlns:c='{space}'><c:chart>{series}</c:chart></c:chartSpace>"
        )
        file.writestr("ppt/slides/_rels/slide1.xml.rels", relations(("chart", "../charts/chart1.xml")))
    assert text_of(path) == "Categories: 2023 H1, 2023 H2, 2024 H1\nSeries 1: 7, -, 9\n"


# workbooks


def test_sheets_are_pages_of_what_the_cells_show(tmp_path) -> None:
    dues = (
        '<sheetData><row r="1"><c r="A1" t="inlineStr"><is><t>Port</t></is></c><c r="B1" t="inlineStr"><is><t>Share</t>'
        '</is></c></row><row r="2"><c r="A2" t="inlineStr"><is><t>Visby</t></is></c><c r="B2" s="1"><v>0.19</v></c>'
        '</row><row r="3"><c r="B3" s="2"><v>45717</v></c></row></sheetData>'
        '<mergeCells><mergeCell ref="A2:A3"/></mergeCells>'
    )
    sheets = {"Dues": dues, "Secret": sheet_rows("hidden words"), "Empty": "<sheetData/>"}
    path = make_xlsx(tmp_path / "a.xlsx", sheets, ("0%", "yyyy-mm-dd"), hidden="Secret")
    document = read(path)
    pages = list(document.pages)
    assert (document.kind, document.unit, document.num_pages) == ("xlsx", "sheet", 3)
    assert pages[0].text == "### Dues\n\nPort | Share\nVisby | 19%\nVisby | 2025-03-01\n\n"
    assert pages[1].text == "(hidden sheet)\n### Secret\n\nhidden | words\n\n"
    assert pages[2].problem == "sheet 3 is blank"


@pytest.mark.parametrize(
    ("code", "value", "text"),
    [
        ("00000", "1234", "01234"), ("000-00-0000", "123456789", "123-45-6789"), ("#,##0.##", "1234.5", "1,234.5"),
        ("0.##%", "0.125", "12.5%"), ('General" m"', "5", "5 m"), ("[Red]General;-General", "-3", "-3"),
        ("# ?/?", "0.75", "0.75"), ("h:mm", "0.39583333333333331", "09:30"), ("h:mm AM/PM", "0.75", "6:00 PM"),
        ("[h]:mm", "1.75", "42:00"), ("hh:mm:ss;@", "0.75", "18:00:00"), ("mm:ss.0", "0.01", "14:24"),
        ("[mm]:ss", "0.05", "72:00"), ("[ss]", "0.05", "4320"), ("0", "2.5", "3"), ("0.00", "1.005", "1.01"),
        ("0.00_);(0.00)", "-0.125", "(0.13)"), ('"No. "\\A00', "7", "No. A07"), ("0.0,", "1250", "1.3"),
        ("[<=9999999]###-####;(###) ###-####", "5551234", "555-1234"), ("000\\.0", "1234", "123.4"),
        ("[<=9999999]###-####;(###) ###-####", "2065551234", "(206) 555-1234"), ("# ##0.##", "1234567.5", "1234 567.5"),
        ('[>=1000]0.0,"K";0', "-2", "-2"), ("0", "x", "x"), ('0;-0;"none"', "0", "none"), ("h:mm", "-1", "-1"),
        ('_-* #,##0.00 "€";_-* "-"?? "€"', "-3", "-3 €"), ("#,###", "0", ""), ("[$€-407] #,##0.0", "7", "€ 7.0"),
        ("#,##0.0 [$CHF]", "7", "7.0 CHF"), ('0;-0;"-"??', "0", "-"), ("[Red]0;[Red][$-409]0", "-5", "-5"),
        ("$#,##0.00", "9.995", "$10.00"), ("$#,##0.00;[Red]-$#,##0.00", "-5", "-$5.00"), ("0;0", "-5", "5"),
        ('_($* #,##0.00_);_($* (#,##0.00);_($* "-"??_)', "-5", "$(5.00)"), ("#,##0;[Red]#,##0", "-1234", "-1,234"),
    ],
)  # fmt: skip
def test_numbers_of_sheets_are_told_as_excel_shows_them(code: str, value: str, text: str) -> None:
    assert is_time(code) or is_number(code)
    assert shown(code, value) == text


@pytest.mark.parametrize("code", ["General", "", "@", "yyyy-mm-dd", "d/m/yyyy h:mm", "0.00E+00", "mmmm"])
def test_dates_and_powers_are_left_to_the_library(code: str) -> None:
    assert not is_time(code)
    assert not is_number(code)


def test_sheets_hold_times_codes_and_rounded_numbers(tmp_path) -> None:
    row = '<row r="1"><c r="A1" s="1"><v>1.75</v></c><c r="B1" s="2"/><c r="C1" s="2"><f>A1</f><v>7</v></c>'
    row += '<c r="D1"><v>23.799999999999997</v></c><c r="E1" s="3"><v>2.5</v></c><c r="F1" s="3"><v>2</v></c></row>'
    row += '<row r="2"><c r="A2" s="4"><v>5551234</v></c><c r="B2"><f>A1+1</f><v></v></c><c r="C2" s="5"><v>-5</v></c>'
    sheets = {"S": f"<sheetData>{row}</row></sheetData>"}
    formats = ("[h]:mm", "000", "0&quot;&lt;&quot;", "###-####", "$0.00;[Red]-$0.00")
    text = text_of(make_xlsx(tmp_path / "a.xlsx", sheets, formats))
    assert text == "### S\n\n42:00 |  | 007 | 23.8 | 3< | 2<\n555-1234 | =A1+1 | -$5.00\n\n"


def test_sheets_name_their_pictures_and_count_those_without_a_description(tmp_path) -> None:
    office = "http://schemas.openxmlformats.org"

    def drawing(*places: tuple[str, ...]) -> str:
        filled = '<x:blipFill><a:blip r:embed="r1"/></x:blipFill>'
        made = (
            "".join(f'<x:pic><x:nvPicPr><x:cNvPr id="2" {told}/></x:nvPicPr>{filled}</x:pic>' for told in place)
            for place in places
        )
        inside = "".join(f"<x:twoCellAnchor><x:grpSp>{one}</x:grpSp></x:twoCellAnchor>" for one in made)
        names = f'xmlns:a="{office}/drawingml/2006/main" xmlns:r="{office}/officeDocument/2006/relationships"'
        return f'<x:wsDr xmlns:x="{office}/drawingml/2006/spreadsheetDrawing" {names}>{inside}</x:wsDr>'

    sheet = f'<drawing xmlns:r="{office}/officeDocument/2006/relationships" r:id="r1"/>'
    path = make_xlsx(tmp_path / "a.xlsx", {"One": sheet_rows("Port") + sheet, "Two": "<sheetData/>" + sheet})
    with zipfile.ZipFile(path, "a") as file:
        for number, places in enumerate([[("", 'descr=""'), ('descr="A&#10;crane"',)], [("",)]], 1):
            rels = relations(("drawing", f"../drawings/drawing{number}.xml"))
            file.writestr(f"xl/worksheets/_rels/sheet{number}.xml.rels", rels)
            file.writestr(f"xl/drawings/drawing{number}.xml", drawing(*places))
            file.writestr(f"xl/drawings/_rels/drawing{number}.xml.rels", relations(("image", "../media/p.png")))
        file.writestr("xl/media/p.png", b"\x89PNG\r\n\x1a\n")
    one, two = read(path).pages
    assert one.text == "### One\n\nPort\n\n[Picture: A crane]\n\n"
    assert [page.problem for page in (one, two)] == [
        "sheet 1 is read without 2 pictures without a description",
        "sheet 2 is read without 1 picture without a description",
    ]


def test_cells_of_sheets_keep_words_whole_and_powers_raised(tmp_path) -> None:
    def runs(*texts: str) -> str:
        said = (
            ("<b/>", text) if at % 2 == 0 else ('<vertAlign val="superscript"/>', text) for at, text in enumerate(texts)
        )
        return "".join(f"<r><rPr>{how}</rPr><t>{text}</t></r>" for how, text in said)

    cells = f"<c r='A1' t='inlineStr'><is>{runs('10', '6')}</is></c><c r='B1' t='inlineStr'><is><r><t>wo</t></r>"
    cells += f"{runs('rd')}</is></c><c r='C1' t='inlineStr'><is><t>a_x000D_b</t></is></c>"
    path = make_xlsx(tmp_path / "a.xlsx", {"S": f"<sheetData><row r='1'>{cells}</row></sheetData>"})
    assert text_of(path) == "### S\n\n10^6 | word | a b\n\n"


def test_a_long_sheet_says_its_columns_again_and_a_far_cell_costs_nothing(tmp_path) -> None:
    rows = sheet_rows("Port Tons", *(f"Port{number} {number}" for number in range(1000)))
    far = (
        '<sheetData><row r="1"><c r="A1"><v>1</v></c></row><row r="1048576"><c r="XFD1048576"><v>2</v></c></row>'
        "</sheetData>"
    )
    first, second = pages_of(make_xlsx(tmp_path / "a.xlsx", {"Long": rows, "Far": far}))
    assert first.count("Port | Tons\n") > 3
    assert second == "### Far\n\n1\n | ... | 2\n\n"


# OpenDocument


def test_opendocument_lists_tables_notes_and_changed_numbers(tmp_path) -> None:
    styles = (
        '<style:style style:name="up"><style:text-properties style:text-position="super 58%"/></style:style>'
        '<style:style style:name="gone"><style:text-properties style:text-line-through-style="solid"/></style:style>'
        '<text:list-style style:name="n"><text:list-level-style-number text:level="1"/></text:list-style>'
    )
    cell = "<table:table-cell{0}><text:p>{1}</text:p></table:table-cell>"
    body = (
        "<text:tracked-changes><text:p>deleted</text:p></text:tracked-changes><text:h>Lease</text:h><text:p>10"
        '<text:span text:style-name="up">6</text:span> <text:span text:style-name="gone">90</text:span>75<text:note>'
        "<text:note-citation>1</text:note-citation><text:note-body><text:p>a note</text:p></text:note-body></text:note>"
        '</text:p><text:list text:style-name="n"><text:list-item><text:p>Fees</text:p></text:list-item>'
        "<text:list-item><text:p>Term</text:p></text:list-item></text:list><table:table><table:table-row>"
        + cell.format(' table:number-rows-spanned="2"', "2024")
        + cell.format("", "May")
        + "</table:table-row><table:table-row><table:covered-table-cell/>"
        + cell.format("", "June")
        + "</table:table-row></table:table><text:h>End</text:h><text:p>last<text:line-break/>words</text:p>"
    )
    document = read(make_odt(tmp_path / "a.odt", body, styles))
    assert (document.kind, document.unit) == ("odt", "section")
    assert [page.text for page in document.pages] == [
        "## Lease\n\n10^6 ~~90~~75[note: a note]\n\n1. Fees\n2. Term\n\n2024 | May\n2024 | June\n\n",
        "## End\n\nlast\nwords\n\n",
    ]


def test_opendocument_numbers_as_the_program_shows_them(tmp_path) -> None:
    styles = (
        '<text:list-style style:name="n"><text:list-level-style-number text:level="1" style:num-format="1" '
        'style:num-suffix="."/><text:list-level-style-number text:level="2" style:num-format="a" style:num-suffix=")"/>'
        '<text:list-level-style-bullet text:level="3"/></text:list-style>'
        '<text:outline-style><text:outline-level-style text:level="1" style:num-format="1"/>'
        '<text:outline-level-style text:level="2" style:num-format="1" text:display-levels="2"/></text:outline-style>'
    )

    def listed(*items: str, more: str = "") -> str:
        made = "".join(
            f"<text:list-item>{one if '<' in one else f'<text:p>{one}</text:p>'}</text:list-item>" for one in items
        )
        return f'<text:list text:style-name="n" {more}>{made}</text:list>'

    inner = "<text:p>Term</text:p>" + listed("runs", "<text:p>ends</text:p>" + listed("dot"))
    body = (
        '<text:h text:outline-level="1">Lease</text:h>' + listed("Fees", inner, more='xml:id="one"')
        + '<text:h text:outline-level="2">Rent</text:h>' + listed("Anew") + "<text:p>between</text:p>"
        + listed(listed("late"), "Next", more='text:continue-list="one"')
        + '<text:h text:outline-level="1">End</text:h>'
    )  # fmt: skip
    text = text_of(make_odt(tmp_path / "a.odt", body, styles))
    assert " ".join(text.split()) == (
        "## 1 Lease 1. Fees 2. Term a) runs b) ends - dot ### 1.1 Rent 1. Anew between c) late 3. Next ## 2 End"
    )


def test_opendocument_says_what_is_deleted_raised_and_hidden(tmp_path) -> None:
    styles = (
        '<style:style style:name="up"><style:text-properties style:text-position="33% 58%"/></style:style>'
        '<style:style style:name="no"><style:text-properties text:display="none"/></style:style>'
    )
    body = (
        "<text:tracked-changes><text:deletion><text:p>x</text:p></text:deletion></text:tracked-changes>"
        '<text:p>10<text:span text:style-name="up">6</text:span> '
        '<text:span text:style-name="no">seen</text:span></text:p>'
    )
    document = read(make_odt(tmp_path / "a.odt", body, styles))
    assert [page.text for page in document.pages] == ["10^6 [hidden: seen]\n\n"]
    assert document.pages[0].problem == "section 1 is read without 1 deletion that the file still holds as a change"


def test_opendocument_objects_remarks_headers_and_pictures(tmp_path) -> None:
    chart = "<table:table><table:table-row>{}</table:table-row></table:table>"
    cells = "".join(f"<table:table-cell><text:p>{text}</text:p></table:table-cell>" for text in ("Visby", "7"))
    objects = "".join(f'<draw:frame><draw:object h:href="./O{at}"/><draw:image/></draw:frame>' for at in (1, 2, 3))
    path = make_odt(
        tmp_path / "a.odt",
        f'<text:p xmlns:h="h">Fee {objects}<office:annotation><x>Ada</x><text:p>check</text:p></office:annotation>'
        "<draw:frame><draw:image/></draw:frame></text:p>",
    )
    names = " ".join(re.findall(r'xmlns:(?!h=)\w+="[^"]*"', zipfile.ZipFile(path).read("content.xml").decode()))
    head = "<style:header-left><text:p>Left</text:p></style:header-left>"
    with zipfile.ZipFile(path, "a") as file:
        file.writestr("O1/content.xml", "<m:math xmlns:m='m'><m:mfrac><m:mn>1</m:mn><m:mn>2</m:mn></m:mfrac></m:math>")
        file.writestr("O2/content.xml", f"<office:chart {names}>{chart.format(cells)}</office:chart>")
        file.writestr("O3/content.xml", "<damaged>")
        file.writestr("styles.xml", f"<office:styles {names}>{head}</office:styles>")
    document = read(path)
    assert text_of(path) == "Left\n\nFee 1/2Visby | 7[object: damaged][comment: Ada check]\n\n"
    assert document.pages[0].problem == "section 1 is read without 1 picture without a description"


def test_opendocument_rows_in_groups_of_groups(tmp_path) -> None:
    row = "<table:table-row><table:table-cell><text:p>{}</text:p></table:table-cell>{}</table:table-row>"
    group = "<table:table-row-group>{}</table:table-row-group>"
    value = '<table:table-cell office:value="7"/>'
    body = f'<table:table table:name="T">{group.format(group.format(row.format("in", value)))}{row.format("out", "")}'
    text = text_of(make_odt(tmp_path / "a.ods", body + "</table:table>", kind="spreadsheet"))
    assert text == "## T\n\nin | 7\nout\n\n"


def test_sheets_of_opendocument_have_their_names(tmp_path) -> None:
    row = '<table:table-row><table:table-cell table:number-columns-repeated="3"><text:p>7</text:p></table:table-cell>'
    head = f"<table:table-header-rows>{row}</table:table-row></table:table-header-rows>"
    rows = row.replace("table-row", 'table-row table:number-rows-repeated="2"', 1) + "</table:table-row>"
    path = make_odt(
        tmp_path / "a.ods", f'<table:table table:name="Boats">{head}{rows}</table:table>', kind="spreadsheet"
    )
    assert pages_of(path) == ["## Boats\n\n" + "7 | 7 | 7\n" * 3 + "\n"]


# rich text


def test_rich_text_keeps_what_its_formats_say(tmp_path) -> None:
    path = tmp_path / "a.rtf"
    path.write_bytes(
        rb"{\rtf1\ansi\ansicpg1251{\fonttbl{\f0\fcharset204 Arial;}}\f0 \'cf\'ee\'f0\'f2 \u8364? {\v secret}"
        rb"{\fs24\strike 90}75 10{\super 6}{\footnote \pard a note}\par \trowd\cellx1 a\cell b\cell\row}"
    )
    document = read(path)
    text = document.pages[0].text
    assert (document.kind, document.unit) == ("rtf", "part")
    for wanted in ("Порт €", "~~90~~75", "10 ^6", "[note: a note]", "a|b"):
        assert wanted in text
    assert "secret" not in text
    assert document.pages[0].problem == "part 1 is read without 1 passage of hidden or deleted text"


def test_rich_text_keeps_powers_emoji_remarks_and_text_boxes(tmp_path) -> None:
    path = tmp_path / "a.rtf"
    path.write_bytes(
        rb"{\rtf1 10\super 6\nosupersub  {\up6\fs16 7} \u-10179?\u-8704? {\*\annotation\pard Why?}"
        rb"{\shp{\*\shpinst\shpleft0{\sp{\sn name}{\sv value}}{\shptxt \pard In a box\par}}}}"
    )
    assert text_of(path).split() == ["10", "^6", "^7", "\U0001f600", "[note:Why?]", "In", "a", "box"]


def test_rich_text_of_wordpad_keeps_the_numbers_of_its_lists(tmp_path) -> None:
    path = tmp_path / "a.rtf"
    path.write_bytes(rb"{\rtf1{\pntext\f0 1.\tab}{\*\pn\pnlvlbody\pndec{\pntxta.}}Fees\par{\pntext\f0 2.\tab}Term\par}")
    assert text_of(path).split() == ["1.", "Fees", "2.", "Term"]


def test_rich_text_has_the_letters_of_symbol_fonts_and_counts_those_that_are_not_known(tmp_path) -> None:
    path = tmp_path / "a.rtf"
    path.write_bytes(
        rb"{\rtf1{\fonttbl{\f0 Arial;}{\f1\froman\fcharset2{\*\panose 05}Symbol;}{\f2\fcharset2 Wingdings;}}\f0 x "
        rb"{\f1 b{\b g}\'b3\u-3998?\plain c} {\v\f1 d}{\strike\f1 e}: {\f2 \'fe\'01} "
        rb'{\field{\*\fldinst{\f0 SYMBOL 108 \\f "Symbol" \\s 9}}{\fldrslt{\f1}}}}'
    )
    (page,) = read(path).pages
    assert page.text == "x βγ≥βc  ~~ε~~: ☑\ufffd λ"
    lost = "1 sign of a symbol font, shown as \ufffd, 1 passage of hidden or deleted text"
    assert page.problem == f"part 1 is read without {lost}"


# mail


def mail(subject: str, body: str) -> EmailMessage:
    made = EmailMessage()
    made["Subject"], made["From"], made["Date"] = subject, "Åsa <a@example.org>", "Thu, 26 Nov 2026 10:00:00 +0000"
    made.set_content(body)
    return made


def test_mail_has_its_head_its_text_once_and_what_is_attached(tmp_path) -> None:
    made = mail("Dues für €", "The fee is €300 in May.")
    made.add_alternative("<p>The fee is <b>€300</b> in May.</p>", subtype="html")
    made.add_attachment(mail("Forwarded", "Older words."))
    made.add_attachment(b"name,qty\noil,3\n", maintype="text", subtype="csv", filename="list.csv")
    made.add_attachment(bytes(range(256)) * 9, maintype="application", subtype="octet-stream", filename="x.bin")
    path = tmp_path / "a.eml"
    path.write_bytes(bytes(made))
    document = read(path)
    text = "".join(page.text for page in document.pages)
    assert (document.kind, document.unit) == ("eml", "section")
    assert text.startswith("Subject: Dues für €\nFrom: Åsa <a@example.org>\nDate: Thu, 26 Nov 2026 10:00:00 +0000\n\n")
    assert text.count("The fee is €300 in May.") == 1
    assert "Subject: Forwarded" in text
    assert "Older words." in text
    assert "list.csv, part 1\n\nname,qty\noil,3\n" in text
    assert document.pages[-1].problem == "x.bin was not read: this is binary data, not text"


def test_a_mail_that_does_not_say_its_encoding_is_guessed_and_the_section_says_so(tmp_path) -> None:
    words = "Gen\u00fcgend Platz f\u00fcr f\u00fcnf Schiffe."
    mails = [b"From a\nSubject: One\n\nPlain words.\n\n", b"From a\nSubject: Two\n\n" + words.encode("cp1252")]
    (tmp_path / "a.mbox").write_bytes(b"".join(mails))
    one, two = read(tmp_path / "a.mbox").pages
    assert (one.problem, two.problem_code) == ("", "guessed")
    assert words in two.text
    assert "CP1252, which is a guess" in two.problem
    (tmp_path / "b.mbox").write_bytes(mails[0] + b"From a\nContent-Type: text/html\n\n<p>Seen<p hidden>and not")
    assert read(tmp_path / "b.mbox").pages[1].problem == "section 2 is read without 1 passage of hidden text"


@pytest.mark.parametrize(
    ("charset", "said", "code"),
    [("utf-8", "", ""), ("latin-1", "", "guessed"), ("latin-1", "us-ascii", "guessed"), ("koi8-r", "koi8-r", "")],
)
def test_bytes_in_the_head_of_a_mail_are_letters(tmp_path, charset: str, said: str, code: str) -> None:
    subject, sender = ("Плата за март", "Юрий") if charset == "koi8-r" else ("Gebühr für März", "Jörg Müller")
    kind = f"Content-Type: text/plain; charset={said}\n" if said else ""
    head = f"SUBJECT: {subject}\nFrom: {sender}\n <j@example.org>\n{kind}\nText\n"
    (tmp_path / "a.eml").write_bytes(head.encode(charset))
    (page,) = read(tmp_path / "a.eml").pages
    assert (page.text, page.problem_code) == (f"Subject: {subject}\nFrom: {sender} <j@example.org>\n\nText\n\n", code)


def test_a_head_that_is_nested_too_deeply_costs_its_mail_alone(tmp_path: Path) -> None:
    deep = b"From c\nTo: " + b"(" * 5000 + b"\n\nLost.\n\n"
    (tmp_path / "a.mbox").write_bytes(b"From a\n\nThe first.\n\n" + deep + b"From b\n\nThe last.\n")
    first, lost, last = read(tmp_path / "a.mbox").pages
    assert (first.text.strip(), lost.problem, last.text.strip()) == (
        "The first.", "mail 2 is nested too deeply [RecursionError]", "The last.",
    )  # fmt: skip


def test_reports_of_mail_servers_are_read_and_pictures_beside_the_text_named(tmp_path) -> None:
    report = b"Content-Type: message/delivery-status\n\nReporting-MTA: dns; mx\n\nStatus: 5.1.1\n"
    scan = b"Content-Type: image/png\nContent-Disposition: inline\n\nx"
    logo = b"Content-Type: image/png\nContent-ID: <1>\n\nx"
    parts = b"".join(b"\n--B\n" + part for part in (report, scan, logo))
    path = tmp_path / "a.eml"
    path.write_bytes(b"Content-Type: multipart/mixed; boundary=B\n" + parts + b"\n--B--\n")
    (page,) = read(path).pages
    assert page.text == "Reporting-MTA: dns; mx\n\nStatus: 5.1.1\n\n"
    assert page.problem == "section 1 is read without 1 picture"


def test_each_mail_of_a_box_begins_a_section(tmp_path) -> None:
    path = tmp_path / "a.mbox"
    path.write_bytes(
        b"".join(
            b"From a@example.org Thu Nov 26 10:00:00 2026\n" + bytes(mail(name, f"{name} text\n>From us")) + b"\n"
            for name in ("One", "Two")
        )
    )
    pages = pages_of(path)
    assert [page.split("\n")[0] for page in pages] == ["Subject: One", "Subject: Two"]
    assert "One text\nFrom us" in pages[0]


def test_a_sentence_that_begins_with_from_ends_no_mail(tmp_path) -> None:
    path = tmp_path / "a.eml"
    path.write_bytes(b"Subject: One\n\nDear Bob,\n\nFrom Monday on, we are closed.\n>From us\n")
    assert pages_of(path) == ["Subject: One\n\nDear Bob,\n\nFrom Monday on, we are closed.\n>From us\n\n"]
    box = b"From a Thu Nov 26 10:00:00 2026\n\nOne.\n\nFrom Monday on, we are closed.\n\nFrom b\n\nTwo.\n"
    path.write_bytes(box)
    assert pages_of(path) == ["One.\n\nFrom Monday on, we are closed.\n\n", "Two.\n\n"]


@pytest.mark.parametrize(
    ("plain", "times"), [("The fee is 300 euros in May.", 1), ("", 1), ("Your program cannot show this mail.", 0)]
)
def test_a_plain_text_that_stands_for_a_page_with_pictures_is_read_if_it_says_the_same(
    tmp_path, plain: str, times: int
) -> None:
    made = EmailMessage()
    made.set_content(plain)
    made.add_alternative("<p>The fee is <b>300</b> euros in May.</p><img src=cid:p>", subtype="html")
    made.get_payload()[1].add_related(b"\x89PNG", maintype="image", subtype="png", cid="<p>")
    made.add_alternative("BEGIN:VEVENT\nLOCATION:Pier 7\nEND:VEVENT", subtype="calendar")
    path = tmp_path / "a.eml"
    path.write_bytes(bytes(made))
    (text,) = pages_of(path)
    assert text.count("The fee is 300 euros in May.") == 1
    assert (plain in text) == bool(times)
    assert "LOCATION:Pier 7" in text


@pytest.mark.parametrize("charset", ["utf-8", "windows-1252"])
def test_a_saved_page_is_read_as_the_page(tmp_path, charset: str) -> None:
    made = EmailMessage()
    made["From"] = "<Saved by a browser>"
    made.set_content(
        "<nav>Home</nav><p>The deposit is €300.</p>", subtype="html", charset=charset, cte="quoted-printable"
    )
    made.add_related(b"\x89PNG", maintype="image", subtype="png", cid="<p>")
    path = tmp_path / "a.mht"
    path.write_bytes(bytes(made))
    document = read(path)
    assert document.kind == "mht"
    assert [page.text.strip() for page in document.pages] == ["The deposit is €300."]


# JSON


def test_a_notebook_is_its_cells(tmp_path) -> None:
    cells = [
        {"cell_type": "markdown", "source": ["# Tides\n", "Text with café"]},
        {
            "cell_type": "code",
            "source": "print(1)\n# no heading",
            "outputs": [
                {"output_type": "stream", "text": ["\x1b[31mone\x1b[0m\n"]},
                {"output_type": "display_data", "data": {"image/png": "iVBOR" * 100, "text/plain": ["<Figure>"]}},
            ],
        },
        {"cell_type": "markdown", "source": "# End"},
    ]
    path = tmp_path / "a.ipynb"
    path.write_text(json.dumps({"cells": cells, "metadata": {"language_info": {"name": "julia"}}, "nbformat": 4}))
    assert pages_of(path) == [
        "# Tides\nText with café\n\n```julia\nprint(1)\n# no heading\n```\n\n```\none\n\n```\n\n"
        "```\n<Figure>\n```\n\n[picture: image/png]\n\n",
        "# End",
    ]


def test_records_have_letters_for_their_numbers(tmp_path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": "caf\\u00e9 \\ud83d\\ude00", "b": "\\u0022 \\\\u0041 \\u0001 \\ud800"}\n')
    assert text_of(path) == '{"a": "café 😀", "b": "\\u0022 \\\\u0041 \\u0001 \ufffd"}\n'


# subtitles


@pytest.mark.parametrize(
    ("name", "data"),
    [
        (
            "a.srt",
            "1\r\n00:00:01,000 --> 00:00:02,500\r\n<i>Hello there,</i>\r\ncaptain &amp; crew.\r\n\r\n2\r\n"
            "00:01:03,000 --> 00:01:04,000\r\n{\\an8}Closed.\r\n",
        ),
        (
            "a.vtt",
            "WEBVTT\n\nSTYLE\n::cue { color: red }\n\nNOTE not said\n\nid\n00:01.000 --> 00:02.000 align:start\n"
            "Hello <00:01.500><c>there</c>,\ncaptain &amp; crew.\n\n01:03.000 --> 01:04.000\nClosed.\n",
        ),
    ],
)
def test_subtitles_are_what_is_said(tmp_path, name: str, data: str) -> None:
    path = tmp_path / name
    path.write_text(data, newline="")
    assert text_of(path).split("\n") == [
        "", "[0:00:01]", "Hello there,", "captain & crew.", "", "[0:01:03]", "Closed.", "",
    ]  # fmt: skip


def test_subtitles_say_who_speaks(tmp_path) -> None:
    path = tmp_path / "a.vtt"
    path.write_text("WEBVTT\n\n00:01.000 --> 00:02.000\n<v.loud Roger Bingham>Hello</v>\n")
    assert "Roger Bingham: Hello\n" in text_of(path)


# tables


@pytest.mark.parametrize("suffix", [".csv", ".tsv"])
def test_each_part_of_a_table_begins_with_the_names_of_its_columns(tmp_path, suffix: str) -> None:
    path = tmp_path / f"a{suffix}"
    between = "," if suffix == ".csv" else "\t"
    rows = [f'{number}{between}"Port\n{number}"{between}{number * 3}' for number in range(400)]
    head = between.join(("id", "port", "tons")) + "\n"
    path.write_text("Dues of 2025\n" + head + "\n".join(rows) + "\n")
    pages = pages_of(path)
    assert len(pages) > 2
    assert all(page.startswith(head) for page in pages[1:])
    assert "".join([pages[0], *(page.removeprefix(head) for page in pages[1:])]) == path.read_text()
    assert all(page.count('"') % 2 == 0 for page in pages), "no row is cut"


def test_a_table_of_numbers_has_no_head(tmp_path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("".join(f"{number},{number}\n" for number in range(2000)))
    assert text_of(path) == path.read_text()


# pictures


def drawn(*words: str) -> Image.Image:
    picture = Image.new("L", (560, 120), 255)
    for number, line in enumerate(words):
        ImageDraw.Draw(picture).text((20, 20 + 40 * number), line, fill=0, font=ImageFont.load_default(28))
    return picture


def test_pictures_are_read_by_ocr_and_that_is_said(tmp_path) -> None:
    pictures = [drawn("The harbour fee is 300", "until the end of May"), drawn(), drawn("Third page, 1,250.75 tons")]
    pictures[0].save(tmp_path / "a.tiff", save_all=True, append_images=pictures[1:])
    document = read(tmp_path / "a.tiff")
    pages = list(document.pages)
    assert (document.kind, document.unit, document.num_pages) == ("image", "page", 3)
    assert pages[0].text.split() == ["The", "harbour", "fee", "is", "300", "until", "the", "end", "of", "May"]
    assert pages[0].problem.startswith("the words of page 1 were read from a picture (OCR, ")
    assert pages[1].problem == "page 2 is a picture without words"
    assert "1,250.75 tons" in pages[2].text
    pictures[0].save(tmp_path / "a.png")
    assert "harbour fee is 300" in text_of(make_zip(tmp_path / "a.zip", {"a.png": (tmp_path / "a.png").read_bytes()}))


def test_a_large_picture_with_a_clear_ground_is_made_smaller(tmp_path) -> None:
    clear = Image.new("RGBA", (2600, 1800), (0, 0, 0, 0))
    ImageDraw.Draw(clear).text((200, 200), "The harbour fee is 300", fill=(0, 0, 0), font=ImageFont.load_default(60))
    clear.save(tmp_path / "a.png")
    assert text_of(tmp_path / "a.png").strip() == "The harbour fee is 300"


def test_scanned_pages_of_a_pdf_are_read_by_ocr_and_others_stay_as_they_are(tmp_path) -> None:
    scans = [drawn("The harbour fee is 300"), drawn(), drawn("Third page, 1,250.75 tons")]
    scans[0].save(tmp_path / "a.pdf", save_all=True, append_images=scans[1:])
    pages = list(read(tmp_path / "a.pdf").pages)
    assert [page.problem_code for page in pages] == ["recognised", "scan", "recognised"]
    assert pages[0].text.strip() == "The harbour fee is 300"
    assert "1,250.75 tons" in pages[2].text
    assert pages[2].problem.startswith("the words of page 3 were read from a picture (OCR, ")


def test_ocr_reads_letters_that_their_fonts_give_no_meaning(tmp_path) -> None:
    """They are drawn as they should be: only their codes say nothing."""
    words = "The harbour fee is 300 euros and falls due in May"
    codes = dict.fromkeys(words)
    names = {" ": "space", "0": "zero", "3": "three"}
    encoding = " ".join(f"/{names.get(letter, letter)}" for letter in codes)
    coded = "".join(f"{0xE0 + place:02x}" for word in words for place, letter in enumerate(codes) if letter == word)
    table = "".join(f"<{0xE0 + place:02x}> <{0xE100 + place:04x}>\n" for place in range(len(codes)))
    space = "begincmap 1 begincodespacerange <00> <FF> endcodespacerange"
    cmap = f"{space} {len(codes)} beginbfchar\n{table}endbfchar endcmap"
    font = (
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /ToUnicode 7 0 R "
        f"/Encoding << /Type /Encoding /Differences [224 {encoding}] >> >>"
    )
    content = f"BT /F1 24 Tf 40 700 Td <{coded}> Tj ET".encode()
    (page,) = read(make_pdf(tmp_path / "a.pdf", content, font=font.encode(), more=[plain(cmap.encode())])).pages
    assert (page.text.strip(), page.problem_code) == (words, "recognised")


def test_ocr_does_not_replace_what_it_did_not_find() -> None:
    own, found = "[Printed page iv, PDF page 1]\n## Copy 7.50\n", "the harbour copy 7,50\n"
    collected = Collected("a.pdf", pages=[Page(1, own, "scan", "")])
    collected.take({"type": "page", "number": 1, "text": found, "problem_code": "recognised", "problem": "by OCR"})
    assert collected.pages == [Page(1, f"[Printed page iv, PDF page 1]\n{found}", "recognised", "by OCR")]


def test_without_the_extra_a_picture_is_refused_with_advice(tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "ocrust", None)
    picture._engine.cache_clear()
    drawn("words").save(tmp_path / "a.png")
    request = Request(str(tmp_path / "a.png"))
    assert not picture.prepare(request)
    with pytest.raises(UnsupportedDocument, match=r"only OCR can read .*ocr.*ocrmypdf"):
        picture.open_picture(request)


# archives


def test_an_archive_is_its_documents_under_their_names(tmp_path) -> None:
    pdf = make_pdf(tmp_path / "in.pdf", show("first"), show("second"))
    inner = make_zip(tmp_path / "in.zip", {"deep.txt": "deep words"})
    members = {
        "b/notes.md": "# Notes\n\ntext",
        "a.pdf": pdf.read_bytes(),
        "c.zip": inner.read_bytes(),
        "photo.gif": b"GIF89a....",
        "empty.txt": "",
        "wrong.docx": "no document",
        "__MACOSX/x": "litter",
        ".DS_Store": "litter",
    }
    document = read(make_zip(tmp_path / "all.zip", members))
    assert (document.kind, document.unit) == ("zip", "part")
    assert [page.text for page in document.pages if page.text] == [
        "a.pdf, page 1\n\nfirst\n",
        "a.pdf, page 2\n\nsecond\n",
        "b/notes.md, section 1\n\n# Notes\n\ntext",
        "c.zip, part 1\n\ndeep.txt, part 1\n\ndeep words",
    ]
    assert [page.problem for page in document.pages if page.problem] == [
        "empty.txt was not read: the file has 0 bytes",
        "photo.gif was not read: this is a GIF image, not a document with text",
        "wrong.docx was not read: the name says a Word document, but the content is plain text",
    ]
    assert [page.number for page in document.pages] == list(range(1, document.num_pages + 1))


def test_an_archive_inside_archives_ends(tmp_path) -> None:
    path = make_zip(tmp_path / "0.zip", {"a.txt": "words"})
    for level in range(1, 9):
        path = make_zip(tmp_path / f"{level}.zip", {f"{level}.zip": path.read_bytes(), "z.txt": f"level {level}"})
    document = read(path)
    assert any(page.problem.endswith("was not read: it is nested too deeply") for page in document.pages)
    assert "level 8" in "".join(page.text for page in document.pages)


def test_a_folder_is_the_documents_in_it(tmp_path, capsys) -> None:
    for name in ("b.txt", "in/a.md", "in/photo.raw", ".hidden.txt", ".git/c.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("text")
    assert files_in(str(tmp_path)) == [str(tmp_path / "b.txt"), str(tmp_path / "in" / "a.md")]
    assert "no known kind: photo.raw" in capsys.readouterr().err
    assert files_in("-") == ["-"]
    (tmp_path / "none").mkdir()
    with pytest.raises(DocumentError, match="no document in this folder"):
        files_in(str(tmp_path / "none"))


# hostile ones


@pytest.mark.parametrize(
    ("name", "data", "error"),
    [
        ("deep.ipynb", "[" * 200_000, DocumentTooComplex),
        ("list.ipynb", "[1, 2]", DocumentError),
        ("deep.eml", "".join("Content-Type: message/rfc822\n\nSubject: s\n" for _ in range(500)), EmptyDocument),
        ("none.srt", "no times at all", EmptyDocument),
        ("a.xls", "\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + "\0" * 600, DocumentError),
    ],
)
def test_files_that_are_no_documents_are_refused(tmp_path, name: str, data: str, error: type[DocumentError]) -> None:
    path = tmp_path / name
    path.write_bytes(data.encode("latin-1"))
    with pytest.raises(error):
        read(path)


def test_archives_that_blow_up_are_refused_or_say_what_is_missing(tmp_path) -> None:
    bomb = b"x" * 60_000_000
    document = read(make_zip(tmp_path / "a.zip", {"a.txt": bomb, "b.txt": "fine"}))
    assert [page.text for page in document.pages] == ["", "b.txt, part 1\n\nfine"]
    assert document.pages[0].problem == "a.txt was not read: a part of it unpacks to far more than it should"
    with pytest.raises(DocumentTooComplex, match="unpacks"):
        read(make_pptx(tmp_path / "a.pptx", f"<p:sp>{slide_text(bomb.decode())}</p:sp>"))
    with pytest.raises(DocumentTooComplex, match="unpacks"):
        read(make_xlsx(tmp_path / "a.xlsx", {"S": sheet_rows(bomb.decode())}))
    with pytest.raises(DocumentTooComplex, match="nested"):
        read(make_odt(tmp_path / "a.odt", "<text:section>" * 5000 + "<text:p>x</text:p>" + "</text:section>" * 5000))
    with pytest.raises(UnsupportedDocument, match="no document in this ZIP archive"):
        read(make_zip(tmp_path / "b.zip", {"photo.raw": bytes(range(256)) * 9}))


def test_a_locked_archive_is_refused(tmp_path) -> None:
    path = make_zip(tmp_path / "a.zip", {"a.txt": b"text"})
    with zipfile.ZipFile(path) as opened:
        start = opened.start_dir
    data = bytearray(path.read_bytes())
    data[start + 8] |= 1
    path.write_bytes(bytes(data))
    with pytest.raises(UnsupportedDocument, match="no document in this ZIP archive"):
        read(path)
