"""What Word files carry beside plain words: numbers, notes, forms, tables, pages, what is hidden or lost."""

from __future__ import annotations

import pytest

from ondevice.documents import read
from ondevice.documents.formats.layout import ordinal
from ondevice.documents.formats.symbols import as_unicode
from tests.builders.documents import WORD, make_raw_docx, make_zip, paragraph

OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
FORMULA = 'xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math"'


def run(text: str, properties: str = "") -> str:
    return f"<w:r><w:rPr>{properties}</w:rPr><w:t>{text}</w:t></w:r>"


def word(tmp_path, body: str, **parts: str):
    return read(make_raw_docx(tmp_path / "a.docx", body, **parts))


def text_of(document) -> str:
    return "".join(page.text for page in document.pages).strip()


def relations(*targets: tuple[str, str]) -> dict[str, str]:
    """A part that names others: the kind and the target of rId0, rId1 and so on."""
    lines = (
        f'<Relationship Id="rId{index}" Type="{OFFICE}/{kind}" Target="{target}"/>'
        for index, (kind, target) in enumerate(targets)
    )
    return {"_rels/document.xml.rels": f"<Relationships>{''.join(lines)}</Relationships>"}


def related(tmp_path, body: str, *targets: tuple[str, str], **members: str | bytes):
    """A Word file with parts that its body names by id."""
    document = f'<w:document {WORD} xmlns:r="{OFFICE}"><w:body>{body}</w:body></w:document>'
    names = {f"word/{name}": data for name, data in (relations(*targets) | members).items()}
    return read(
        make_zip(tmp_path / "a.docx", {"[Content_Types].xml": "<Types/>", "word/document.xml": document} | names)
    )


NUMBERING = f"""<w:numbering {WORD}><w:abstractNum w:abstractNumId="0">
<w:lvl w:ilvl="0"><w:start w:val="1"/><w:numFmt w:val="upperRoman"/><w:lvlText w:val="%1."/></w:lvl>
<w:lvl w:ilvl="1"><w:start w:val="3"/><w:numFmt w:val="decimal"/><w:isLgl/><w:lvlText w:val="%1.%2"/></w:lvl>
<w:lvl w:ilvl="2"><w:numFmt w:val="lowerLetter"/><w:lvlText w:val="(%3)"/></w:lvl>
<w:lvl w:ilvl="3"><w:numFmt w:val="bullet"/><w:lvlText w:val="·"/></w:lvl></w:abstractNum>
<w:num w:numId="1"><w:abstractNumId w:val="0"/></w:num><w:num w:numId="2"><w:abstractNumId w:val="0"/>
<w:lvlOverride w:ilvl="0"><w:startOverride w:val="7"/></w:lvlOverride></w:num></w:numbering>"""


def item(text: str, level: int, number: int = 1) -> str:
    place = f'<w:numPr><w:ilvl w:val="{level}"/><w:numId w:val="{number}"/></w:numPr>'
    return f"<w:p><w:pPr>{place}</w:pPr>{run(text)}</w:p>"


def test_word_numbers_clauses_as_word_does(tmp_path) -> None:
    items = [("Term", 0, 1), ("runs", 1, 1), ("ends", 1, 1), ("Fees", 0, 1), ("due", 1, 1), ("five", 2, 1),
             ("ten", 2, 1), ("dot", 3, 1), ("late", 1, 1), ("six", 2, 1), ("Anew", 0, 2),
             ("Next", 0, 2), ("none", 0, 0)]  # fmt: skip
    text = text_of(word(tmp_path, "".join(item(*one) for one in items), numbering=NUMBERING))
    assert text.split("\n\n") == [
        "I. Term", "1.3 runs", "1.4 ends", "II. Fees", "2.3 due", "(a) five", "(b) ten", "- dot", "2.4 late", "(a) six",
        "VII. Anew", "VIII. Next", "none",
    ]  # fmt: skip


def test_word_numbers_and_looks_that_stand_in_a_style(tmp_path) -> None:
    styles = f"""<w:styles {WORD}><w:style w:styleId="base"><w:name w:val="heading 1"/><w:pPr><w:numPr>
    <w:numId w:val="1"/></w:numPr></w:pPr></w:style><w:style w:styleId="own"><w:basedOn w:val="base"/></w:style>
    <w:style w:styleId="gone"><w:rPr><w:vanish/></w:rPr></w:style></w:styles>"""
    numbering = NUMBERING.replace("</w:lvl>", '<w:pStyle w:val="own"/></w:lvl>', 1)
    hidden = run("SECRET", '<w:rStyle w:val="gone"/>')
    heading = f'<w:p><w:pPr><w:pStyle w:val="own"/></w:pPr>{run("Term")}{hidden}</w:p>'
    document = word(
        tmp_path, heading + paragraph("one") + heading + paragraph("two"), styles=styles, numbering=numbering
    )
    assert [page.text for page in document.pages] == ["## I. Term\n\none\n\n", "## II. Term\n\ntwo\n\n"]


@pytest.mark.parametrize(
    ("number", "style", "text"),
    [(4, "decimal", "4"), (4, "decimalZero", "04"), (28, "lowerLetter", "bb"), (1994, "upperRoman", "MCMXCIV"),
     (0, "upperRoman", "0"), (-3, "lowerLetter", "-3"), (4000, "lowerRoman", "4000"), (3, "chicago", "3")],
)  # fmt: skip
def test_ordinals(number: int, style: str, text: str) -> None:
    assert ordinal(number, style) == text


def test_word_raised_struck_and_hidden_runs(tmp_path) -> None:
    raised = '<w:vertAlign w:val="superscript"/>'
    body = run("10") + run("1", raised) + run("2", raised) + run(" m; ") + run("90", "<w:strike/>") + run("75 euros")
    body += run("SECRET", "<w:vanish/>") + run(" seen", '<w:vanish w:val="0"/>')
    document = word(tmp_path, f"<w:p>{body}</w:p>")
    assert text_of(document) == "10^12 m; ~~90~~ 75 euros seen"
    assert [page.problem for page in document.pages] == ["section 1 is read without 1 passage of hidden text"]


def test_word_formulas(tmp_path) -> None:
    def text(letters: str) -> str:
        return f"<m:r><m:t>{letters}</m:t></m:r>"

    root = f"<m:rad><m:deg>{text('3')}</m:deg><m:e>{text('2')}{text('7')}</m:e></m:rad>"
    total = (
        f'<m:nary><m:naryPr><m:chr m:val="∑"/></m:naryPr><m:sub>{text("i=1")}</m:sub><m:sup>{text("n")}</m:sup>'
        f"<m:e><m:sSub><m:e>{text('x')}</m:e><m:sub>{text('i')}</m:sub></m:sSub></m:e></m:nary>"
    )
    choice = (
        '<m:f><m:fPr><m:type m:val="noBar"/></m:fPr>' + f"<m:num>{text('5')}</m:num><m:den>{text('2')}</m:den></m:f>"
    )
    power = f"<m:sSup><m:e><m:d><m:e>{text('a+b')}</m:e></m:d></m:e><m:sup>{text('10')}</m:sup></m:sSup>"
    row = f"<m:m><m:mr><m:e>{text('1')}</m:e><m:e>{text('2')}</m:e></m:mr></m:m>"
    lines = "".join(f"<w:p><m:oMath {FORMULA}>{one}</m:oMath></w:p>" for one in (root, total, choice, power, row))
    assert text_of(word(tmp_path, lines)).split("\n\n") == ["³√27", "∑_(i=1)^n x_i", "(5 over 2)", "(a+b)^10", "[1, 2]"]


def test_word_signs_of_symbol_fonts(tmp_path) -> None:
    body = '<w:r><w:sym w:font="Wingdings" w:char="F0FE"/></w:r>' + run(
        " 5 \uf0b1 \uf06dm", '<w:rFonts w:ascii="Symbol"/>'
    )
    document = word(tmp_path, f'<w:p>{body}<w:r><w:sym w:font="Ours" w:char="F041"/></w:r></w:p>')
    assert text_of(document).startswith("☑")
    assert next(iter(document.pages)).problem == "section 1 is read without 1 sign of the font Ours, shown as \ufffd"
    assert as_unicode("5 \uf0b1 \uf06d", "Symbol") == "5 ± μ"
    assert as_unicode("plain", "Arial") == "plain"


def test_word_notes_and_comments_follow_their_paragraph_with_their_marks(tmp_path) -> None:
    def part(kind: str, *texts: str) -> str:
        notes = (
            f'<w:{kind} w:id="{number}" w:author="Eva">{paragraph(text)}</w:{kind}>'
            for number, text in enumerate(texts)
        )
        return f"<w:{kind}s {WORD}>{''.join(notes)}</w:{kind}s>"

    marks = "".join(
        f'<w:r><w:{kind}Reference w:id="{n}"/></w:r>' for kind, n in (("footnote", 1), ("footnote", 0), ("endnote", 0))
    )
    body = f'<w:p>{run("Dues")}{marks}<w:r><w:commentReference w:id="0"/></w:r></w:p>' + paragraph("Next")
    parts = {"footnotes": part("footnote", "first", "second", "alone"), "endnotes": part("endnote", "last")}
    text = text_of(word(tmp_path, body, **parts, comments=part("comment", "too dear")))
    assert text.split("\n\n") == [
        "Dues[1][2][i]", "[1] second", "[2] first", "[i] last", "[Comment by Eva: too dear]", "Next",
        "## Footnotes", "alone",
    ]  # fmt: skip


def test_word_headers_and_what_the_file_says_of_itself(tmp_path) -> None:
    header = f"<w:hdr {WORD}>{paragraph('QM-114')}</w:hdr>"
    body = paragraph("Text") + '<w:sectPr><w:headerReference r:id="rId0"/></w:sectPr>'
    parts = {"header1.xml": header, "header2.xml": header, "footer1.xml": f"<w:ftr {WORD}>{paragraph('12')}</w:ftr>"}
    kinds = (("header", "header1.xml"), ("header", "header2.xml"), ("footer", "footer1.xml"))
    core = "<core><title>Crane</title><creator>Eva</creator><created>2024-03-05T10:00:00Z</created></core>"
    document = related(tmp_path, body, *kinds, **parts, **{"../docProps/core.xml": ""})
    assert text_of(document) == "[Header: QM-114]\n\nText"
    members = {"[Content_Types].xml": "<Types/>", "docProps/core.xml": core}
    members["word/document.xml"] = f"<w:document {WORD}><w:body>{paragraph('Text')}</w:body></w:document>"
    assert (
        text_of(read(make_zip(tmp_path / "b.docx", members))) == "Title: Crane\nAuthor: Eva\nDate: 2024-03-05\n\nText"
    )


def test_word_forms_and_fields(tmp_path) -> None:
    def field(data: str) -> str:
        begin = f'<w:fldChar w:fldCharType="begin"><w:ffData>{data}</w:ffData></w:fldChar>'
        return f'<w:r>{begin}<w:fldChar w:fldCharType="end"/></w:r>'

    body = field('<w:checkBox><w:default w:val="0"/><w:checked/></w:checkBox>') + run(" A ")
    body += field('<w:checkBox><w:default w:val="1"/></w:checkBox>') + run(" B ")
    body += field("<w:checkBox><w:checked w:val='false'/></w:checkBox>") + run(" C ")
    body += field('<w:ddList><w:result w:val="1"/><w:listEntry w:val="Oslo"/><w:listEntry w:val="Malta"/></w:ddList>')
    link = '<w:r><w:fldChar w:fldCharType="begin"/><w:instrText> HYPERLINK "https://example.org/a" </w:instrText>'
    link += f'<w:fldChar w:fldCharType="separate"/></w:r>{run(" form")}<w:r><w:fldChar w:fldCharType="end"/></w:r>'
    assert text_of(word(tmp_path, f"<w:p>{body}{link}</w:p>")) == "☒ A ☒ B ☐ C Malta form (https://example.org/a)"


def test_word_fields_show_their_result_once_and_nothing_of_their_code(tmp_path) -> None:
    def char(kind: str) -> str:
        return f'<w:r><w:fldChar w:fldCharType="{kind}"/></w:r>'

    def code(text: str) -> str:
        return f"<w:r><w:instrText>{text}</w:instrText></w:r>"

    def field(inside: str, result: str) -> str:
        return char("begin") + inside + char("separate") + run(result) + char("end")

    choice = code(" IF ") + field(code(" MERGEFIELD Land "), "DE") + code(' = "DE" ') + run('"Inland" "Abroad"')
    body = run("On ") + field(code(" DATE "), "5/3/2024") + run(" see ") + field(code(" REF _Ref1 "), "Table 3")
    body += run(": ") + field(choice + "<w:r><w:tab/></w:r>", "Inland") + run(".")
    unended = char("begin") + code(" IF ") + run("lost in the code")
    text = text_of(word(tmp_path, f"<w:p>{body}</w:p><w:p>{unended}</w:p>" + paragraph("The rest.")))
    assert text == "On 5/3/2024 see Table 3: Inland.\n\nThe rest."


def test_word_tables(tmp_path) -> None:
    def cell(text: str, properties: str = "") -> str:
        return f"<w:tc><w:tcPr>{properties}</w:tcPr>{text if '<' in text else paragraph(text)}</w:tc>"

    def table(*rows: str) -> str:
        return f"<w:tbl>{''.join(f'<w:tr>{row}</w:tr>' for row in rows)}</w:tbl>"

    merged = table(
        cell("Year") + cell("Tons", '<w:gridSpan w:val="2"/>'),
        cell("2023", '<w:vMerge w:val="restart"/>') + cell("Q1") + cell("10"),
        cell("", "<w:vMerge/>") + cell("Q2") + cell("12"),
        "<w:trPr><w:gridBefore w:val='1'/></w:trPr>"
        + cell("Q3")
        + cell(table(cell("in") + cell("1"), cell("out") + cell("2"))),
        "<w:trPr><w:del/></w:trPr>" + cell("SECRET") + cell("x"),
    )
    frame = table(cell(paragraph("One") + paragraph("Two")))
    assert text_of(word(tmp_path, merged + frame)) == (
        "Year | Tons | Tons\n2023 | Q1 | 10\n2023 | Q2 | 12\n | Q3 | in: 1; out: 2\n\nOne\n\nTwo"
    )


def test_word_deletions_are_told_and_join_what_they_stood_between(tmp_path) -> None:
    gone = '<w:del w:id="1"><w:r><w:delText>90</w:delText></w:r></w:del>'
    ends = "<w:pPr><w:rPr><w:del/></w:rPr></w:pPr>"
    document = word(
        tmp_path,
        f"<w:p>{run('The fee is ')}{gone}<w:ins>{run('75')}</w:ins></w:p><w:p>{ends}{run('No ')}</w:p>"
        f"<w:p>{ends}{gone}</w:p><w:p>{run('pets.')}</w:p><w:p>{ends}{run('The end')}</w:p>",
    )
    assert text_of(document) == "The fee is 75\n\nNo pets.\n\nThe end"
    assert document.pages[0].problem == "section 1 is read without 2 deletions that Word still shows as a change"


def test_word_headings_by_the_level_of_their_style(tmp_path) -> None:
    styles = (
        f'<w:styles {WORD}><w:style w:styleId="K"><w:name w:val="Kapitel"/><w:pPr><w:outlineLvl w:val="1"/></w:pPr>'
        "</w:style></w:styles>"
    )
    body = f"<w:p><w:pPr><w:pStyle w:val='K'/></w:pPr>{run('Fees')}</w:p>{paragraph('None.')}"
    assert text_of(word(tmp_path, body, styles=styles)) == "### Fees\n\nNone."


def test_word_pages_where_the_file_says_where_they_end(tmp_path) -> None:
    seen = "<w:r><w:lastRenderedPageBreak/></w:r>"
    body = (
        f"<w:p><w:pPr><w:pageBreakBefore/></w:pPr>{run('one')}</w:p><w:p><w:r><w:br w:type='page'/></w:r></w:p>"
        f"<w:p>{seen}{run('two')}{seen}{run('three')}</w:p><w:p><w:pPr><w:sectPr/></w:pPr>{run('more')}</w:p>"
        f"<w:p><w:pPr><w:pageBreakBefore/></w:pPr>{seen}{run('four')}</w:p>"
    )
    document = word(tmp_path, body)
    assert (document.unit, [page.text.split() for page in document.pages]) == (
        "page", [["one"], ["two"], ["three", "more"], ["four"]],
    )  # fmt: skip
    long = word(tmp_path, paragraph("word " * 900) + "<w:p><w:r><w:br w:type='page'/></w:r></w:p>" + paragraph("end"))
    assert (long.unit, long.num_pages) == ("section", 1), "more pages end in it than the file says"


def test_word_ruby_drop_capital_and_pictures(tmp_path) -> None:
    ruby = f"<w:ruby><w:rt>{run('kan')}</w:rt><w:rubyBase>{run('漢')}</w:rubyBase></w:ruby>"
    ruby = f"<w:p><w:r>{ruby}</w:r>{run('字')}</w:p>"
    drop = f"<w:p><w:pPr><w:framePr w:dropCap='drop'/></w:pPr>{run('D')}</w:p>" + paragraph("rop")
    told = '<w:p><w:r><w:drawing><docPr descr="north 12"/><blip/></w:drawing></w:r></w:p>'
    mute = '<w:drawing><docPr name="Picture 1"/><blip/></w:drawing><w:pict><textpath string="DRAFT"/></w:pict>'
    mute = f"<w:p><w:r>{mute}</w:r></w:p>"
    document = word(tmp_path, ruby + drop + told + mute)
    assert text_of(document).replace(" \n", "\n").split("\n\n") == [
        "漢 (kan)字",
        "Drop",
        "[Picture: north 12]",
        "DRAFT",
    ]
    assert [page.problem for page in document.pages] == ["section 1 is read without 1 picture without a description"]


def test_word_charts_diagrams_and_documents_within(tmp_path) -> None:
    def points(*values: object) -> str:
        return "".join(f'<pt idx="{index}"><v>{value}</v></pt>' for index, value in enumerate(values))

    def series(name: str, *values: int) -> str:
        return f"<ser><tx><v>{name}</v></tx><cat>{points('North', 'South')}</cat><val>{points(*values)}</val></ser>"

    chart = f"<chartSpace><title><t>Cargo</t></title>{series('2023', 12, 30)}{series('2024', 14, 31)}</chartSpace>"
    inner = make_raw_docx(tmp_path / "inner.docx", paragraph("From Word")).read_bytes()
    mail = b"MIME-Version: 1.0\nContent-Type: text/html\n\n<p>From mail"
    body = (
        '<w:p><w:r><w:drawing><chart r:id="rId0"/></w:drawing><w:drawing><relIds r:dm="rId1"/></w:drawing></w:r></w:p>'
    )
    body += "".join(f'<w:altChunk r:id="rId{number}"/>' for number in range(2, 8))
    kinds = [
        ("chart", "c.xml"),
        ("diagramData", "d.xml"),
        *(("aFChunk", name) for name in ("a.html", "a.txt", "a.docx", "a.mht", "a.rtf", "gone")),
    ]
    document = related(
        tmp_path, body, *kinds, **{
            "c.xml": chart, "d.xml": "<data><pt><t>Plan</t></pt><pt><t>Do</t></pt></data>",
            "a.html": "<h1>From HTML</h1>", "a.txt": "From <text>", "a.docx": inner,
            "a.mht": mail, "a.rtf": r"{\rtf1 x}",
        },
    )  # fmt: skip
    assert text_of(document).replace("\n\n", "\n").split("\n") == [
        "Cargo", " | 2023 | 2024", "North | 12 | 14", "South | 30 | 31", "- Plan", "- Do", "## From HTML",
        "From <text>", "From Word", "From mail", "x",
    ]  # fmt: skip
    told = "1 part (document inside this one): KeyError"
    assert [page.problem for page in document.pages if page.problem] == [f"section 1 is read without {told}"]


def test_word_charts_have_a_row_for_each_category_and_show_gaps_dates_and_shares(tmp_path) -> None:
    def cache(kind: str, code: str, **points: str) -> str:
        held = "".join(f'<pt idx="{at[1:]}"><v>{value}</v></pt>' for at, value in points.items())
        return f"<{kind}><formatCode>{code}</formatCode><ptCount val='3'/>{held}</{kind}>"

    days = cache("numCache", "d/m/yyyy", _0="45292", _1="45292", _2="45323.5")
    chart = "<chartSpace>" + "".join(
        f"<ser><tx><v>{name}</v></tx><cat>{days}</cat><val>{points}</val></ser>"
        for name, points in (
            ("All", cache("numCache", "0%", _0="0.25", _1="0.5")),
            ("New", cache("numCache", "General", _2="0.30000000000000004")),
        )
    )
    body = '<w:p><w:r><w:drawing><chart r:id="rId0"/></w:drawing></w:r></w:p>'
    document = related(tmp_path, body, ("chart", "c.xml"), **{"c.xml": chart + "</chartSpace>"})
    assert text_of(document) == (
        "| All | New\n2024-01-01 | 25% | -\n2024-01-01 | 50% | -\n2024-02-01 12:00:00 | - | 0.3"
    )
