"""Faults of PDF files as people have them: each kind with a file of its own; what is lost is said."""

from __future__ import annotations

from pathlib import Path

import pytest
from pypdf import PdfReader, PdfWriter
from pypdf.annotations import FreeText, Link

from ondevice.documents import Page
from ondevice.documents.formats.opening import open_document
from ondevice.documents.formats.pdf_glyphs import Run, upright
from ondevice.documents.formats.pdf_lines import put_into_lines
from ondevice.documents.formats.reader import Request
from tests.builders.documents import IMAGE_CONTENT, make_pdf, plain

HEBREW = "שלום עולם 25"


def at(x: float, y: float, text: str, size: float = 12, before: str = "") -> bytes:
    """Page content with a text at a place."""
    return f"BT {before} /F1 {size} Tf 1 0 0 1 {x} {y} Tm ({text}) Tj ET\n".encode("cp1252")


def composite(encoding: str, ordering: str = "Identity", more: str = "") -> bytes:
    """A font of two-byte codes."""
    return (
        f"<< /Type /Font /Subtype /Type0 /BaseFont /Serif /Encoding /{encoding} {more} /DescendantFonts [<< "
        "/Type /Font /Subtype /CIDFontType0 /BaseFont /Serif /DW 1000 "
        f"/CIDSystemInfo << /Registry (Adobe) /Ordering ({ordering}) /Supplement 2 >> "
        "/FontDescriptor << /Type /FontDescriptor /FontName /Serif /Flags 4 /FontBBox [0 -200 1000 900] "
        "/ItalicAngle 0 /Ascent 800 /Descent -200 /StemV 80 >> >>] >>"
    ).encode()


def with_unicode(letters: str) -> tuple[bytes, bytes]:
    """A font whose codes are the places of letters, from 1, and the object 7 that says so."""
    pairs = "".join(f"<{i:04x}> <{letter.encode('utf-16-be').hex()}>\n" for i, letter in enumerate(letters, 1))
    table = (
        "begincmap 1 begincodespacerange <0000> <FFFF> endcodespacerange "
        f"{len(letters)} beginbfchar\n{pairs}endbfchar endcmap"
    )
    return composite("Identity-H", more="/ToUnicode 7 0 R"), plain(table.encode())


def coded(text: str, letters: str) -> str:
    return "".join(f"{letters.index(letter) + 1:04x}" for letter in text)


def pages(path: Path) -> tuple[Page, ...]:
    """Read without the worker, whose start takes far longer; `test_pdf` and `test_extract` read with it."""
    return tuple(open_document(Request(str(path))).pages)


def text_of(tmp_path: Path, content: bytes, **more) -> str:
    return pages(make_pdf(tmp_path / "a.pdf", content, **more))[0].text


# letters


@pytest.mark.parametrize(
    ("encoding", "ordering", "codes", "text"),
    [
        ("Identity-H", "Japan1", "034b034d034f", "あいう"),
        ("KSCms-UHC-H", "Korea1", "항구는".encode("cp949").hex(), "항구는"),
        ("GBK-EUC-H", "GB1", "港口费用".encode("gbk").hex(), "港口费用"),
        ("EUC-H", "Japan1", "港は火曜".encode("euc-jp").hex(), "港は火曜"),
        ("B5pc-H", "CNS1", "港口費用".encode("big5").hex(), "港口費用"),
    ],
)
def test_letters_of_east_asian_fonts_without_a_table(tmp_path, encoding, ordering, codes, text) -> None:
    content = f"BT /F1 14 Tf 60 700 Td <{codes}> Tj ET".encode()
    assert text_of(tmp_path, content, font=composite(encoding, ordering)) == f"{text}\n"


def test_names_of_glyphs_are_spelled(tmp_path) -> None:
    names = "1 /T_h /f_f_i /one.oldstyle /eightoldstyle /uni00660069 /Asmall"
    encoding = f"/Encoding << /Type /Encoding /Differences [{names}] >>".encode()
    font = b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica " + encoding + b" >>"
    assert (
        text_of(tmp_path, at(60, 700, r"\001e o\002ce, \003\004, \005n\006l"), font=font) == "The office, 18, final\n"
    )


def test_signs_that_take_no_room_are_left_out(tmp_path) -> None:
    word = "com\u00admis\u200bsion"
    letters = "".join(sorted(set(word)))
    font, table = with_unicode(letters)
    content = f"BT /F1 12 Tf 60 700 Td <{coded(word, letters)}> Tj ET".encode()
    assert text_of(tmp_path, content, font=font, more=[table]) == "commission\n"


def test_what_letters_stand_for_is_read_in_their_place(tmp_path) -> None:
    content = (
        b"BT /F1 12 Tf 60 700 Td (The ) Tj /Span << /ActualText (harbour) >> BDC (h4rb0ur) Tj EMC ( is open.) Tj ET"
    )
    assert text_of(tmp_path, content) == "The harbour is open.\n"


def test_bold_by_drawing_again_is_read_once(tmp_path) -> None:
    content = b"".join(at(60 + 0.3 * i, 700, "Deposit: 300 euros") for i in range(4)) + at(
        60, 680, "Deposit: 300 euros"
    )
    assert text_of(tmp_path, content) == "Deposit: 300 euros\nDeposit: 300 euros\n"


def test_an_operator_in_an_array_costs_nothing(tmp_path) -> None:
    assert text_of(tmp_path, b"BT /F1 12 Tf 60 700 Td [(Harbour) 0 Tc -250 (dues)] TJ ET") == "Harbour dues\n"


def test_letters_that_no_language_has_are_said(tmp_path) -> None:
    told = "The keeper of the lighthouse trimmed a wick before dusk and noted each passing vessel in his journal"
    shifted = "".join(chr(ord(letter) + 1) if letter.isalpha() else letter for letter in told).replace("{", "z")
    sound, wrong = pages(make_pdf(tmp_path / "a.pdf", at(60, 700, told, 8), at(60, 700, shifted, 8)))
    assert sound.problem == ""
    assert wrong.text
    assert wrong.problem == "page 2: its letters are improbable in any language: its fonts may name them wrongly"


def test_where_only_pypdf_knows_the_letters_it_is_asked(tmp_path) -> None:
    """A font whose table takes one glyph for a word and the others for nothing, as Cairo writes for Arabic."""
    letters = "abc"
    font, table = with_unicode(letters)
    table = table.replace(b"<0001> <0061>", b"<0001> <" + "lamp".encode("utf-16-be").hex().encode() + b">")
    table = table.replace(b"<0002> <0062>", b"<0002> <>").replace(b"<0003> <0063>", b"<0003> <>")
    (page,) = pages(
        make_pdf(tmp_path / "a.pdf", b"BT /F1 12 Tf 60 700 Td <000100020003> Tj ET", font=font, more=[table])
    )
    assert (page.text.strip(), page.problem) == ("lamp", "")


# numbers, words, order


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ("(bears 10) Tj /F1 7 Tf 5 Ts (6) Tj 0 Ts /F1 12 Tf ( cycles) Tj", "bears 10^6 cycles"),
        ("(bears 10) Tj 5 Ts (6) Tj 0 Ts ( cycles) Tj", "bears 10^6 cycles"),
        ("(10) Tj /F1 7 Tf 5 Ts (-12) Tj 0 Ts /F1 12 Tf (m) Tj", "10^{-12}m"),
        ("(log) Tj /F1 7 Tf -3 Ts (2) Tj 0 Ts /F1 12 Tf (8) Tj", "log28"),
        ("(101) Tj /F1 7 Tf -3 Ts (2) Tj 0 Ts /F1 12 Tf ( is five) Tj", "101_2 is five"),
        ("(the 1) Tj /F1 7 Tf 5 Ts (st) Tj 0 Ts /F1 12 Tf ( of May) Tj", "the 1st of May"),
        ("/F1 7 Tf 5 Ts (1) Tj 0 Ts /F1 12 Tf (See there.) Tj", "1 See there."),
    ],
)
def test_raised_and_lowered_figures(tmp_path, parts: str, text: str) -> None:
    assert text_of(tmp_path, f"BT /F1 12 Tf 60 700 Td {parts} ET".encode()) == f"{text}\n"


def test_accents_that_are_drawn_over_letters_are_part_of_them(tmp_path) -> None:
    after = rb"BT /F1 12 Tf 50 700 Td [(Agu\264) 445 (e and S) 500 (\250) 333 (, 5\264 tall)] TJ ET"
    assert text_of(tmp_path, after) == "Agu\xe9 and S\u0308, 5\xb4 tall\n"
    before = rb"BT /F1 12 Tf 50 700 Td [(J\264) 445 (egou)] TJ ET"
    assert text_of(tmp_path, before) == "J\xe9gou\n"


def test_spaces_beside_larger_marks_and_in_formulas(tmp_path) -> None:
    marked = at(45, 700, "*", 20) + at(60, 700, "git") + b"BT /F2 12 Tf 75.5 700 Td (merge) Tj ET"
    assert text_of(tmp_path, marked) == "* git merge\n"
    tight = [Run(0, 0.0, 10.0, _row("of", 0, 10), -2.0, 8.0), Run(0, 0.0, 10.0, _row("128", 11.55, 26), -2.0, 8.0)]
    assert put_into_lines(tight, [])[0].text == "of 128"
    row = [*_row("ab", 20, 30), (" ", 33.01, 33.01), *_row("cd", 33.0, 43)]
    over = [Run(0, 0.0, 10.0, row, -2.0, 8.0), Run(0, 0.0, 10.0, _row("xy", 0, 26), -2.0, 8.0)]
    assert put_into_lines(over, [])[0].text.endswith(" cd")


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        (["a consid-", "erable success"], "a considerable\nsuccess"),
        ([r"the com\255", r"mission met in No\255", "vember."], "the commission\nmet in November."),
        (["its well-", "known brand"], "its well-known\nbrand"),
        (["a light-house, the light-", "house"], "a light-house, the light-house"),
        (["at example.org/cloud-", "function"], "at example.org/cloud-function"),
        (["Mayer-", "Smith"], "Mayer-\nSmith"),
        (["a state-", "of-the-art crane"], "a state-of-the-art\ncrane"),
        (["an up-", "and-coming infor-", "mation-based"], "an up-and-coming\ninformation-based"),
        (["the x-", "axis"], "the x-axis"),
        (["Haupt-", "und Nebenkosten"], "Haupt-\nund Nebenkosten"),
    ],
)
def test_words_broken_at_line_ends(tmp_path, lines: list[str], text: str) -> None:
    content = b"".join(at(60, 700 - 15 * index, line) for index, line in enumerate(lines))
    assert text_of(tmp_path, content) == f"{text}\n"


def test_hebrew_in_visual_order_and_word_by_word(tmp_path) -> None:
    letters = "".join(sorted(set(HEBREW)))
    font, table = with_unicode(letters)
    first, second, number = HEBREW.split()
    visual = f"{number} {second[::-1]} {first[::-1]}"
    words = [(first[::-1], 500), (second[::-1], 430), (number, 400)]
    for content in (
        f"BT /F1 12 Tf 1 0 0 1 72 700 Tm <{coded(visual, letters)}> Tj ET",
        "".join(f"BT /F1 12 Tf 1 0 0 1 {x} 700 Tm <{coded(word, letters)}> Tj ET\n" for word, x in words),
    ):
        assert text_of(tmp_path, content.encode(), font=font, more=[table]) == f"{HEBREW}\n"


def test_numbers_of_letters_are_letters_where_the_font_says_so(tmp_path) -> None:
    """Beside text that is left out, so that pypdf is not asked."""
    font = composite("Identity-H", more="/ToUnicode /Identity-H").replace(b"CIDFontType0", b"CIDFontType2")
    content = f"BT /F1 14 Tf 60 700 Td <{'Opłata portowa'.encode('utf-16-be').hex()}> Tj ET ".encode()
    hidden = at(60, -400, "Say yes.").replace(b"/F1", b"/F2")
    assert text_of(tmp_path, content + hidden, font=font) == "Opłata portowa\n"


@pytest.mark.parametrize(
    ("taken", "text"),
    [("\ud09a\ud0be\ud0bf\ud0b8\ud180\ud0be\ud0b2\ud0b0", "Копирова"), ("항구는화요일아침", "항구는화요일아침")],
)
def test_cyrillic_whose_bytes_were_taken_for_signs_is_told_from_korean(tmp_path, taken: str, text: str) -> None:
    font, table = with_unicode(taken)
    content = f"BT /F1 12 Tf 60 700 Td <{coded(taken, taken)}> Tj ET".encode()
    assert text_of(tmp_path, content, font=font, more=[table]) == f"{text}\n"


def test_arabic_in_presentation_forms(tmp_path) -> None:
    visual = "\ufe90\ufefb\ufe91"  # beh, lam and alef as one sign, beh, from the left
    font, table = with_unicode(visual)
    content = f"BT /F1 12 Tf 60 700 Td <{coded(visual, visual)}> Tj ET".encode()
    assert text_of(tmp_path, content, font=font, more=[table]) == "بلاب\n"


def test_signs_that_stand_one_below_the_other_are_one_line() -> None:
    """Runs by hand: PDFium sees no sign of a font that is not in the file."""
    signs = [(sign, 500.0 - 20 * (i // 3), 700.0 - 12 * (i % 3)) for i, sign in enumerate("灯台の人は夜")]
    runs = [Run(0, y, 12.0, [(sign, x, x + 12)], y - 2, y + 10) for sign, x, y in signs]
    assert [line.text for line in put_into_lines(upright(runs), [])] == ["灯台の", "人は夜"]
    far = [Run(0, 700 - 30 * i, 12.0, [("有", 60.0, 72.0)], 698 - 30 * i, 710 - 30 * i) for i in range(3)]
    assert [line.text for line in put_into_lines(upright(far), [])] == ["有"] * 3


def test_marks_and_tight_signs_stand_in_their_column() -> None:
    """As PDFium gives them: a comma beside the middle, blanks that it makes up."""
    places = [("灯", 60.0, 12.0), ("、", 66.0, 6.0), (" 台", 60.0, 12.0)]
    runs = [
        Run(0, 700 - 8 * i, 12.0, _row(sign, x, x + w), 698 - 8 * i, 710 - 8 * i)
        for i, (sign, x, w) in enumerate(places)
    ]
    assert [line.text for line in put_into_lines(upright(runs), [])] == ["灯、台"]


def _row(text: str, left: float, right: float) -> list[tuple[str, float, float]]:
    return [(sign, left, right) for sign in text]


@pytest.mark.parametrize(("text", "after"), [("灯台", "灯台"), ("등대", "등 대"), ("\uff41\uff42", "\uff41 \uff42")])
def test_only_signs_that_are_set_without_spaces_may_stand_apart(text: str, after: str) -> None:
    run = Run(0, 700.0, 12.0, [(text[0], 60.0, 72.0), (text[1], 76.0, 88.0)], 698, 710)
    assert [line.text for line in put_into_lines([run], [])] == [after]


def test_signs_with_half_a_blank_under_the_next_one_are_one_line() -> None:
    """As of Chinese letters of two bytes, the second of which the font takes for a blank."""
    runs = [
        Run(0, 700.0, 12.0, [(sign, 60.0 + 12 * at, 72.0 + 12 * at), (" ", 72.0 + 12 * at, 78.1 + 12 * at)], 698, 710)
        for at, sign in enumerate("港口费用")
    ]
    assert [line.text for line in put_into_lines(runs, [])] == ["港口费用"]


def test_boxes_that_are_too_wide_make_no_spaces_where_the_text_has_its_own() -> None:
    """As of a font that is not in the file: each letter seems to reach into the next."""
    advances = zip("Our mat", (12.0, 6.0, 6.0, 4.0, 12.0, 6.0, 6.0), strict=True)
    glyphs, left = list[tuple[str, float, float]](), 60.0
    for letter, advance in advances:
        glyphs.append((letter, left, left + 12.0))
        left += advance
    assert [line.text for line in put_into_lines([Run(0, 700.0, 12.0, glyphs, 698, 710)], [])] == ["Our mat"]


def test_a_space_between_boxes_that_reach_into_it_is_one_where_the_text_goes_on_behind_it() -> None:
    glyphs = [(letter, 60.0 + 6 * at, 66.0 + 6 * at) for at, letter in enumerate("lamps")]
    wide = [("l", 90.0, 98.0), (" ", 93.0, 100.0), ("b", 97.0, 103.0)]  # of 12 points
    assert [line.text for line in put_into_lines([Run(0, 700.0, 12.0, glyphs + wide, 698, 710)], [])] == ["lampsl b"]
    fake = [("l", 90.0, 98.0), (" ", 98.0, 101.0), ("b", 98.2, 104.0)]  # the next letter lies over it
    assert [line.text for line in put_into_lines([Run(0, 700.0, 12.0, glyphs + fake, 698, 710)], [])] == ["lampslb"]


@pytest.mark.parametrize("is_by_rows", [True, False])
def test_columns_of_text_are_read_one_after_the_other(tmp_path, is_by_rows: bool) -> None:
    left = [
        "Left one the quick brown fox",
        "left two jumps over a lazy",
        "left three dog and goes to",
        "left four bed.",
    ]
    right = [
        "Right one meanwhile a cat",
        "right two sat on the mat and",
        "right three saw it all",
        "right four lay still.",
    ]
    drawn = [[at(72, 700 - 14 * i, text) for i, text in enumerate(left)]]
    drawn.append([at(330, 700 - 14 * i, text) for i, text in enumerate(right)])
    ordered = [one for part in (zip(*drawn, strict=True) if is_by_rows else drawn) for one in part]
    assert text_of(tmp_path, at(72, 740, "A Title", 16) + b"".join(ordered)) == "\n".join(
        ["## A Title", *left, *right, ""]
    )


# tables

PORTS = [["Port", "May", "June", "July"], ["Visby", "", "12", ""], ["Slite", "7", "", "9"], ["Klinte", "3", "4", "5"]]


@pytest.mark.parametrize("is_by_rows", [True, False])
def test_empty_cells_keep_their_place(tmp_path, is_by_rows: bool) -> None:
    cells = [(x, y, text) for y, row in zip((700, 680, 660, 640), PORTS, strict=True) for x, text in enumerate(row)]
    cells = cells if is_by_rows else sorted(cells, key=lambda cell: cell[0])
    content = b"".join(at(60 + 100 * x, y, text) for x, y, text in cells if text)
    rows = "Port | May | June | July\nVisby |  | 12 |\nSlite | 7 |  | 9\nKlinte | 3 | 4 | 5\n"
    assert text_of(tmp_path, content) == rows


def test_a_table_that_goes_on_gets_its_head_again(tmp_path) -> None:
    def rows(first: int, last: int) -> bytes:
        places = [(number, 700 - 14 * (number - first)) for number in range(first, last)]
        return b"".join(at(72, y, f"Item {n}") + at(250, y, f"{3 * n}.50") + at(400, y, f"{n % 7}") for n, y in places)

    head = at(72, 740, "Name") + at(250, 740, "Price") + at(400, 740, "Stock")
    first, second, third = pages(make_pdf(tmp_path / "a.pdf", head + rows(1, 9), rows(9, 15), at(72, 700, "The end.")))
    assert first.text.count("Name | Price | Stock\n") == 1
    assert second.text.startswith("Name | Price | Stock\nItem 9 | 27.50 | 2\n")
    assert third.text == "The end.\n"
    units = at(250, 726, "in kroner") + at(400, 726, "in boxes")
    two = pages(make_pdf(tmp_path / "a.pdf", head + units + rows(1, 9), rows(9, 15)))[1]
    assert two.text.startswith("Name | Price | Stock\n | in kroner | in boxes\nItem 9 | 27.50 | 2\n")
    label = pages(make_pdf(tmp_path / "a.pdf", head + at(72, 720, "North") + rows(1, 9), rows(9, 15)))[1]
    assert label.text.startswith("Name | Price | Stock\nItem 9 | 27.50 | 2\n"), "it names the rows before"


def drawn(rows: dict[float, dict[float, str]]) -> bytes:
    """Page content with texts by their height and place."""
    return b"".join(at(x, y, text) for y, row in rows.items() for x, text in row.items())


HEAD = {60: "Sea", 130: "Port", 230: "May", 300: "June"}


def test_names_that_are_drawn_after_a_table_stand_over_their_columns(tmp_path) -> None:
    rows = {
        700: {60: "Port", 120: "Ships", 180: "May", 240: "June", 300: "May", 360: "June", 420: "All"},
        680: {60: "Visby", 120: "9", 186: "1", 246: "2", 306: "3", 366: "4", 426: "10"},
        660: {60: "Slite", 120: "8", 186: "7", 246: "8", 306: "9", 366: "0", 426: "24"},
        740: {60: "What they landed."},
        728: {210: "2024", 330: "2025"},
        714: {201: "Week 21", 321: "Week 22"},
        640: {60: "In tonnes."},
    }
    assert text_of(tmp_path, drawn(rows)) == (
        "What they landed.\n |  | 2024 | 2024 | 2025 | 2025 |\n |  | Week 21 | Week 21 | Week 22 | Week 22 |\n"
        "Port | Ships | May | June | May | June | All\nVisby | 9 | 1 | 2 | 3 | 4 | 10\n"
        "Slite | 8 | 7 | 8 | 9 | 0 | 24\nIn tonnes.\n"
    )


def test_rows_that_are_drawn_after_the_notes_are_in_their_table(tmp_path) -> None:
    rows = {
        680: {60: "North", 130: "Visby", 230: "12", 300: "13"},
        640: {60: "East", 130: "Klinte", 230: "3", 300: "4"},
        560: {60: "What stands below is no row of the table."},
        660: {60: "South", 130: "Slite", 230: "7", 300: "9"},
        620: {60: "West", 130: "Lund", 230: "5", 300: "6"},
        700: HEAD,
    }
    assert text_of(tmp_path, drawn(rows)) == (
        "Sea | Port | May | June\nNorth | Visby | 12 | 13\nSouth | Slite | 7 | 9\nEast | Klinte | 3 | 4\n"
        "West | Lund | 5 | 6\nWhat stands below is no row of the table.\n"
    )


def test_a_label_in_the_middle_of_its_rows_is_told_in_each(tmp_path) -> None:
    rows = {
        700: HEAD,
        680: {60: "North", 130: "Visby", 230: "12", 300: "13"},
        653: {60: "South"},
        660: {130: "Slite", 230: "7", 300: "9"},
        646: {130: "Klinte", 230: "3", 300: "4"},
        626: {60: "What stands below is no row of the table."},
    }
    assert text_of(tmp_path, drawn(rows)) == (
        "Sea | Port | May | June\nNorth | Visby | 12 | 13\nSouth | Slite | 7 | 9\nSouth | Klinte | 3 | 4\n"
        "What stands below is no row of the table.\n"
    )


def test_cells_that_stand_in_the_middle_of_their_row_are_in_it(tmp_path) -> None:
    rows = {
        700: HEAD,
        680: {60: "North", 130: "Visby", 230: "12", 300: "13"},
        661: {130: "The harbour of"},
        655: {60: "South", 230: "7", 300: "9"},
        649: {130: "Slite"},
        628: {60: "East"},
        622: {130: "Klinte", 230: "3", 300: "4"},
        600: {60: "West", 130: "Lund", 230: "5", 300: "6"},
        581: {130: "The quay of"},
        575: {60: "Inland", 230: "-", 300: "1"},
        569: {130: "1998"},
    }
    assert text_of(tmp_path, drawn(rows)) == (
        "Sea | Port | May | June\nNorth | Visby | 12 | 13\nSouth | The harbour of Slite | 7 | 9\n"
        "East | Klinte | 3 | 4\nWest | Lund | 5 | 6\nInland | The quay of 1998 | - | 1\n"
    )


@pytest.mark.parametrize(
    ("texts", "read"),
    [
        pytest.param(
            [
                *((60, 700, "Port"), (130, 700, "Ships"), (200, 700, "What is told")),
                *((60, 674, "Visby"), (130, 674, "12"), (200, 680, "ships of wood that"), (200, 668, "carry salt")),
                *((60, 644, "Slite"), (130, 644, "7")),
                *((200, 656, "a harbour"), (200, 644, "for ferries"), (200, 632, "and mail")),
                *((60, 608, "Klinte"), (130, 614, "some"), (130, 602, "boats")),
                *((200, 614, "fishing"), (200, 602, "in May")),
                (60, 570, "What stands below is no row of the table."),
            ],
            "Port | Ships | What is told\nVisby | 12 | ships of wood that carry salt\n"
            "Slite | 7 | a harbour for ferries and mail\nKlinte | some boats | fishing in May\n"
            "What stands below is no row of the table.\n",
            id="paragraphs in the middle, as LaTeX sets them",
        ),
        pytest.param(
            [
                *((60, 700, "command"), (200, 700, "what it does")),
                *(
                    (60, 674, "go to the shop"),
                    (200, 680, "walks down the hill and"),
                    (200, 668, "then over the bridge"),
                ),
                *((60, 650, "come back home"), (200, 650, "walks the same way up again")),
            ],
            "command | what it does\ngo to the shop | walks down the hill and then over the bridge\n"
            "come back home | walks the same way up again\n",
            id="names and descriptions",
        ),
        pytest.param(
            [
                *((60, 700, "Work"), (200, 700, "Hours"), (300, 700, "Cost")),
                *((60, 680, "Change of the"), (60, 667, "wiring")),
                *((200, 680, "79 hours at"), (200, 667, "$85"), (300, 680, "$6,715")),
                *((60, 647, "Test"), (200, 647, "1 hour"), (300, 647, "$85")),
            ],
            "Work | Hours | Cost\nChange of the wiring | 79 hours at $85 | $6,715\nTest | 1 hour | $85\n",
            id="from the top, as word processors draw them",
        ),
        pytest.param(
            [
                *((60, 700, "Supplier"), (160, 700, "What"), (300, 700, "Price")),
                *((60, 680, "Northern"), (60, 666, "Timber"), (60, 652, "Company"), (60, 638, "of Visby")),
                *((160, 673, "boards and"), (160, 659, "beams for"), (160, 645, "the hall"), (300, 659, "12,400")),
                *((60, 620, "Slite Lime"), (160, 620, "lime"), (300, 620, "900")),
            ],
            "Supplier | What | Price\nNorthern Timber Company of Visby | boards and beams for the hall | 12,400\n"
            "Slite Lime | lime | 900\n",
            id="of any height in the middle, as browsers print them",
        ),
        pytest.param(
            [
                *((160, 700, "Dues"), (230, 700, "Rent")),
                *((300, 726, "Light"), (304, 713, "and"), (298, 700, "power"), (370, 700, "Total")),
                *((440, 713, "From"), (438, 700, "others"), (520, 700, "All")),
                *((60, 680, "Start"), (160, 680, "12"), (230, 680, "13"), (300, 680, "14"), (370, 680, "39")),
                *((440, 680, "5"), (520, 680, "44"), (60, 660, "End"), (160, 660, "2"), (230, 660, "3")),
                *((300, 660, "4"), (370, 660, "9"), (440, 660, "1"), (520, 660, "10")),
            ],
            " | Dues | Rent | Light and power | Total | From others | All\nStart | 12 | 13 | 14 | 39 | 5 | 44\n"
            "End | 2 | 3 | 4 | 9 | 1 | 10\n",
            id="names of columns that end at one height, as in annual reports",
        ),
    ],
)
def test_cells_of_several_lines_are_in_their_row(
    tmp_path: Path, texts: list[tuple[float, float, str]], read: str
) -> None:
    assert text_of(tmp_path, b"".join(at(*one) for one in texts)) == read


def test_figures_with_blanks_that_are_made_up_are_level_and_a_currency_is_part_of_its_figure(tmp_path) -> None:
    """A row in one text object: PDFium puts blanks without a height into its wide gaps."""
    row = "BT /F1 12 Tf 200 {} Td [(\\200) -1500 ({}) -3000 (\\200) -1500 ({})] TJ ET "
    labels = at(60, 700, "Start", 8) + at(60, 680, "End", 8) + at(60, 660, "Change", 8)
    rows = "".join(row.format(*one) for one in ((700, "175", "202"), (680, "181", "(2)"), (660, "6", "\\226")))
    euros = b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>"
    read = text_of(tmp_path, labels + rows.encode(), font=euros)
    assert read == "Start | \u20ac 175 | \u20ac 202\nEnd | \u20ac 181 | \u20ac (2)\nChange | \u20ac 6 | \u20ac \u2013\n"


def test_near_rows_of_figures_stay_apart(tmp_path) -> None:
    rows = {
        700: HEAD,
        680: {60: "North", 130: "Visby", 230: "12", 300: "13"},
        660: {130: "Slite", 230: "7"},
        653: {60: "South", 300: "9"},
        646: {130: "Klinte", 230: "3"},
    }
    assert text_of(tmp_path, drawn(rows)).endswith("\n | Slite | 7 |\nSouth |  |  | 9\n | Klinte | 3 |\n")


def test_text_of_another_column_is_no_label(tmp_path) -> None:
    rows = {
        700: {60: "Words on the left"},
        653: {60: "go on here."},
        660: {230: "Slite", 330: "7", 400: "9"},
        646: {230: "Klinte", 330: "3", 400: "4"},
    }
    assert text_of(tmp_path, drawn(rows)).endswith("go on here.\nSlite | 7 | 9\nKlinte | 3 | 4\n")


def test_tables_in_two_columns_of_text_stay_apart_and_the_text_stays_whole(tmp_path) -> None:
    def column(left: float, name: str, below: float) -> dict[float, dict[float, str]]:
        table = {740 - 12 * i: {left: row[0], left + 60: row[2], left + 120: row[3]} for i, row in enumerate(PORTS)}
        return table | {below - 12 * i: {left: f"{name} {i} the boats came in"} for i in range(9)}

    content = drawn(column(60, "Left", 680)) + drawn(column(320, "Right", 675))
    table = "Port | June | July\nVisby | 12 |\nSlite |  | 9\nKlinte | 4 | 5\n"
    first, second = ("".join(f"{name} {i} the boats came in\n" for i in range(9)) for name in ("Left", "Right"))
    assert text_of(tmp_path, content) == table + first + table + second


def test_figures_that_nearly_touch_are_parted_by_the_columns(tmp_path) -> None:
    rows = {
        700: {60: "Size", 144: "Read", 190: "Set", 222: "Sync"},
        680: {60: "1K", 144: "6.6", 190: "0.4", 222: "1.0"},
        660: {60: "8K", 144: "165.22 38.5", 216: "2.0"},
        640: {60: "9K", 144: "9.7", 190: "3.8", 222: "3.0"},
    }
    assert text_of(tmp_path, drawn(rows)).split("\n")[2] == "8K | 165.22 | 38.5 | 2.0"


def test_cells_that_nearly_touch_are_parted_by_the_columns(tmp_path) -> None:
    rows = {
        700: {60: "Port", 141: "May", 173: "June", 216: "July"},  # gaps of less than a cell, each more than a space
        680: {60: "Visby", 144: "12", 177: "13", 218: "14"},
        660: {60: "Slite", 144: "7", 177: "8", 218: "9"},
        640: {60: "New Klintehamn 3", 177: "4", 218: "5"},
        620: {60: "All of the ports in 2024"},
    }
    assert text_of(tmp_path, drawn(rows)) == (
        "Port | May | June | July\nVisby | 12 | 13 | 14\nSlite | 7 | 8 | 9\nNew Klintehamn | 3 | 4 | 5\n"
        "All of the ports in 2024\n"
    )


def test_a_name_beside_its_column_is_its_head(tmp_path) -> None:
    rows = {y: {60: f"Item {y}", 200: "12", 300: "wood"} for y in (680, 660, 640)}
    content = drawn({700: {60: "Name", 224: "No. of", 300: "Kind"}} | rows)
    assert text_of(tmp_path, content).startswith("Name | No. of | Kind\nItem 680 | 12 | wood\n")


def test_a_table_far_below_another_has_columns_of_its_own(tmp_path) -> None:
    rows = {y: {60: f"Item {y}", 300: "wood"} for y in (700, 686, 672, 658)}
    other = {610: {60: "Port", 150: "May", 230: "June"}, 596: {60: "Visby", 150: "1", 230: "2"}}
    assert text_of(tmp_path, drawn(rows | other)).endswith("Item 658 | wood\nPort | May | June\nVisby | 1 | 2\n")


def test_sentences_that_are_set_wide_are_no_table(tmp_path) -> None:
    lines = ["Otherwise you may add users to the group", "by which a lamp may be lit well"]
    rows = {700 - 14 * i: dict(zip(range(40, 600, 70), line.split(), strict=True)) for i, line in enumerate(lines)}
    assert "|" not in text_of(tmp_path, drawn(rows))


@pytest.mark.parametrize("mark", [r"\225", "1.", "(a)", "[16]"])
def test_the_marks_of_a_list_are_no_column(tmp_path, mark: str) -> None:
    content = b"".join(at(60, y, mark) + at(90, y, "Trim the wick") for y in (700, 685))
    assert "|" not in text_of(tmp_path, content)


# what stands beside the text


def test_a_header_is_kept_once_and_page_numbers_each_time(tmp_path) -> None:
    contents = [
        at(72, 800, "ACME Annual Report") + at(72, 700, f"Text {n}.") + at(300, 30, f"Page {n} of 3") for n in (1, 2, 3)
    ]
    told = [page.text for page in pages(make_pdf(tmp_path / "a.pdf", *contents))]
    assert told == ["ACME Annual Report\nText 1.\nPage 1 of 3\n", "Text 2.\nPage 2 of 3\n", "Text 3.\nPage 3 of 3\n"]


@pytest.mark.parametrize("matrix", [".707 .707 -.707 .707 100 500", "1 0 0 1 60 680"])
def test_a_watermark_parts_no_sentence_and_is_told_once(tmp_path, matrix: str) -> None:
    mark = f"BT /F1 60 Tf {matrix} Tm (CONFIDENTIAL) Tj ET\n".encode()
    content = (
        at(60, 715, "The sentence goes on")
        + mark
        + at(60, 700, "over two lines and ends.")
        + at(60, 685, "More of it.")
    )
    first, second = pages(make_pdf(tmp_path / "a.pdf", content, content))
    sentences = "The sentence goes on\nover two lines and ends.\nMore of it.\n"
    assert (first.text, second.text) == (sentences + "CONFIDENTIAL\n", sentences)


def test_printed_page_numbers_are_told(tmp_path) -> None:
    labels = b"/PageLabels << /Nums [0 << /S /r >> 2 << /S /D /St 1 >>] >>"
    told = [
        p.text
        for p in pages(make_pdf(tmp_path / "a.pdf", *(at(60, 700, f"Text {n}") for n in range(3)), catalog=labels))
    ]
    assert told[2] == "[Printed page 1, PDF page 3]\nText 2\n"
    assert "Printed page ii" in told[1]


def test_fields_are_read_where_they_stand(tmp_path) -> None:
    widgets = [
        b"/FT /Tx /T (name) /V (Jane Q. Filled) /Rect [120 695 300 712]",
        b"/FT /Btn /T (agreed) /V /Yes /AS /Yes /Rect [60 655 72 667]",
        b"/FT /Btn /T (sold) /AS /Off /Rect [60 635 72 647]",
        b"/FT /Ch /T (port) /V (v) /Opt [[(v) (Visby)] [(s) (Slite)]] /Rect [60 595 200 612]",
        b"/FT /Tx /T (secret) /V (unseen) /F 2 /Rect [60 500 200 512]",
    ]
    more = [b"<< /Type /Annot /Subtype /Widget " + widget + b" >>" for widget in widgets]
    numbers = b" ".join(b"%d 0 R" % (7 + index) for index in range(len(more)))
    content = at(60, 700, "Name:") + at(80, 658, "Agreed") + at(80, 638, "Sold")
    form, page = b"/AcroForm << /Fields [" + numbers + b"] >>", b"/Annots [" + numbers + b"]"
    text = text_of(tmp_path, content, catalog=form, page=page, more=more)
    assert text == "Name: Jane Q. Filled\n☒ Agreed\n☐ Sold\nport: Visby\n"


def test_a_signature_says_who_signed_when_and_what_is_drawn_in_its_field(tmp_path) -> None:
    by = b"/Name (Ji\xc5\x99\xc3\xad Moor) /M (D:20240517101500+02'00') /Reason (Agreed)"  # UTF-8 that does not say so
    widget = b"<< /Type /Annot /Subtype /Widget /FT /Sig /T (Keeper) /Rect [60 600 260 640] /AP << /N 9 0 R >> "
    drawn = b"BT /F1 9 Tf 2 20 Td (Signed at the quay) Tj ET"
    font = b"/Resources << /Font << /F1 3 0 R >> >>"
    appearance = b"<< /Subtype /Form /BBox [0 0 200 40] %s /Length %d >>\nstream\n%s\nendstream"
    more = [
        widget + b"/V << /Type /Sig " + by + b" >> >>",
        widget.replace(b"/N 9 0 R", b"").replace(b"600 260 640", b"500 260 540") + b"/V << /Type /Sig >> >>",
        appearance % (font, len(drawn), drawn),
    ]
    text = text_of(tmp_path, at(60, 700, "Contract"), page=b"/Annots [7 0 R 8 0 R]", more=more)
    assert (
        text
        == "Contract\nKeeper: signed by Ji\u0159\u00ed Moor on 2024-05-17, Agreed\nSigned at the quay\nKeeper: signed\n"
    )


def test_the_data_of_an_xfa_form_are_read(tmp_path) -> None:
    data = b'<xdp><x:datasets xmlns:x="d"><x:data><form><Berth>14</Berth><Empty/></form></x:data></x:datasets></xdp>'
    text = text_of(tmp_path, at(60, 700, "Please wait..."), catalog=b"/AcroForm << /XFA 7 0 R >>", more=[plain(data)])
    assert text == "Please wait...\nBerth: 14\n"


def test_remarks_and_links_follow_the_text(tmp_path) -> None:
    writer = PdfWriter(
        clone_from=PdfReader(make_pdf(tmp_path / "a.pdf", at(60, 700, "See our claims or example.org/here.")))
    )
    writer.add_annotation(0, FreeText(text="Ask the keeper", rect=(60, 600, 200, 620)))
    writer.add_annotation(0, Link(rect=(105, 695, 141, 712), url="https://example.org/claims-42"))
    writer.add_annotation(0, Link(rect=(160, 695, 260, 712), url="https://example.org/here"))
    writer.write(tmp_path / "b.pdf")
    text = pages(tmp_path / "b.pdf")[0].text
    assert text.endswith("\nRemark: Ask the keeper\nLink: claims (https://example.org/claims-42)\n")


def test_of_many_links_the_rest_is_counted(tmp_path) -> None:
    writer = PdfWriter(clone_from=PdfReader(make_pdf(tmp_path / "a.pdf", at(60, 700, "Links"))))
    for number in range(8):
        writer.add_annotation(0, Link(rect=(0, 0, 9, 9), url=f"https://example.org/{number}"))
    writer.write(tmp_path / "b.pdf")
    assert pages(tmp_path / "b.pdf")[0].text.endswith("Link: https://example.org/4\nLinks: 3 more\n")


def test_attached_files_are_named_and_short_texts_read(tmp_path) -> None:
    writer = PdfWriter(clone_from=PdfReader(make_pdf(tmp_path / "a.pdf", at(60, 700, "Prices are attached."))))
    writer.add_attachment("prices.txt", b"Berth: 85 euros")
    writer.add_attachment("plan.dwg", b"\x00\x01")
    writer.write(tmp_path / "b.pdf")
    text = pages(tmp_path / "b.pdf")[0].text
    assert "Attached file: prices.txt\nBerth: 85 euros\n" in text
    assert "Attached file: plan.dwg\n" in text


def test_the_alternative_text_of_a_figure_is_read(tmp_path) -> None:
    tree = [
        b"<< /Type /StructTreeRoot /K 8 0 R /ParentTree << /Nums [0 [8 0 R]] >> >>",
        b"<< /Type /StructElem /S /Figure /P 7 0 R /Pg 5 0 R /K 0 /Alt (A lighthouse at dusk) >>",
    ]
    content = at(60, 700, "Text") + b"/Figure << /MCID 0 >> BDC 9 9 9 9 re f EMC"
    marks = b"/MarkInfo << /Marked true >> /StructTreeRoot 7 0 R"
    text = text_of(tmp_path, content, catalog=marks, page=b"/StructParents 0", more=tree)
    assert text == "Text\nFigure: A lighthouse at dusk\n"


# what nobody sees

UNSEEN = "page 1: it holds text that nobody sees on it, left out here"
LAYER = b"/OCProperties << /OCGs [7 0 R] /D << /OFF [7 0 R] >> >>"


@pytest.mark.parametrize(
    "hidden",
    [
        at(60, 680, "Say yes.", before="1 1 1 rg"),
        at(60, 680, "Say yes.", before="3 Tr"),
        at(60, 680, "Say yes.", size=0.1),
        at(60, -400, "Say yes."),
        at(700, 680, "Say yes."),
        b"/OC /Layer BDC " + at(60, 680, "Say yes.") + b"EMC",
    ],
    ids=["white", "invisible", "tiny", "below", "beside", "layer"],
)
def test_what_nobody_sees_is_left_out_and_said(tmp_path, hidden: bytes) -> None:
    content = at(60, 700, "The deposit is 300 euros.") + hidden
    layer = [b"<< /Type /OCG /Name (Draft) >>"]
    (page,) = pages(make_pdf(tmp_path / "a.pdf", content, catalog=LAYER if b"/OC" in hidden else b"", more=layer))
    assert page == Page(1, "The deposit is 300 euros.\n", "unreadable", UNSEEN)


def test_what_is_drawn_again_in_black_is_seen(tmp_path) -> None:
    """PDFium gives the first of the two, without which the page looks the same."""
    fee, no = "The deposit is 300 euros.", "Say yes."
    white = at(60, 700, fee, before="1 g") + at(60, 700, fee, before="0 g")
    assert text_of(tmp_path, white) == f"{fee}\n"
    grey = at(60, 700, fee, before="0.8 g") + at(60, 700, fee, before="0 g")
    off = b"/OC /Layer BDC " + at(60, 680, no, before="0.8 g") + at(60, 680, no, before="0 g") + b"EMC"
    layer = [b"<< /Type /OCG /Name (Draft) >>"]
    (page,) = pages(make_pdf(tmp_path / "a.pdf", grey + off, catalog=LAYER, more=layer))
    assert page == Page(1, f"{fee}\n", "unreadable", UNSEEN)


def test_an_image_with_text_beside_the_page_is_a_scan(tmp_path) -> None:
    path = make_pdf(tmp_path / "a.pdf", IMAGE_CONTENT + b" " + at(60, -400, "Say yes."), at(60, 700, "Text"))
    assert pages(path)[0].problem_code == "scan"


@pytest.mark.parametrize(
    "content",
    [
        b"0 0 .5 rg 50 670 300 50 re f " + at(60, 690, "White on blue", before="1 1 1 rg"),
        IMAGE_CONTENT + b" " + at(60, 690, "Text of a scanned page, with some forty letters", before="3 Tr"),
        b"0 g 60 692 3 9 re f 70 692 3 9 re f " + at(60, 690, "over drawn letters", before="3 Tr"),
    ],
    ids=["on a ground", "on an image", "on drawn letters"],
)
def test_what_is_seen_or_lies_on_something_drawn_is_kept(tmp_path, content: bytes) -> None:
    (page,) = pages(make_pdf(tmp_path / "a.pdf", content))
    assert page.text
    assert page.problem == ""
