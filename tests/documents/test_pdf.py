"""PDF files: text, pages without text, passwords and damage."""

from __future__ import annotations

import pytest

from ondevice.documents import read
from ondevice.errors import DocumentError, EmptyDocument, PasswordRequired, WrongPassword
from tests.builders.documents import GLYPH_FONT, IMAGE_CONTENT, deflated, encrypt, make_pdf, show

# Enough compressed zero bytes to pass every limit when unpacked.
BOMB = b"\x00" * 30_000_000


def codes(document) -> list[str]:
    return [page.problem_code for page in document.pages]


def test_text_ligatures_and_page_ends(tmp_path) -> None:
    document = read(make_pdf(tmp_path / "a.pdf", show("The first page"), show("Caf\xe9")))
    assert (document.kind, document.unit, document.num_pages) == ("pdf", "page", 2)
    assert [page.text for page in document.pages] == ["The first page\n", "Caf\xe9\n"]


def test_fpdf_document_with_a_real_font_table(tmp_path) -> None:
    fpdf = pytest.importorskip("fpdf")
    pdf = fpdf.FPDF()
    for number in range(3):
        pdf.add_page()
        pdf.set_font("helvetica", size=12)
        pdf.multi_cell(0, 8, f"Paragraph {number}. " * 30)
    pdf.output(str(tmp_path / "a.pdf"))
    document = read(tmp_path / "a.pdf")
    assert [page.text.count(f"Paragraph {page.number - 1}.") for page in document.pages] == [30, 30, 30]


def test_pages_without_text_say_why(tmp_path) -> None:
    document = read(
        make_pdf(
            tmp_path / "a.pdf",
            show("text"),
            IMAGE_CONTENT,
            b"q Q",
            b"0 0 m 10 10 l S",
            b"BI /W 1 /H 1 /BPC 8 /CS /G ID \x80 EI",
            IMAGE_CONTENT + b" " + show("stamp"),
        )
    )
    assert codes(document) == ["", "scan", "blank", "scan", "scan", "scan"]
    assert document.pages[1].problem == "page 2 is an image without a text layer"
    assert document.pages[3].problem == "page 4 is a drawing without a text layer"
    assert document.pages[5].text == "stamp\n"


def test_scans_only(tmp_path) -> None:
    with pytest.raises(
        EmptyDocument, match=r"all 6 pages are scanned images without a text layer \(a\.pdf\).*ocrmypdf"
    ):
        read(make_pdf(tmp_path / "a.pdf", *[IMAGE_CONTENT] * 6))


def test_blank_pages_only(tmp_path) -> None:
    with pytest.raises(EmptyDocument, match="holds no text"):
        read(make_pdf(tmp_path / "a.pdf", b"", b""))


@pytest.mark.parametrize("algorithm", ["RC4-40", "RC4-128", "AES-128", "AES-256"])
def test_passwords(tmp_path, algorithm: str) -> None:
    source = make_pdf(tmp_path / "plain.pdf", show("secret"))
    locked = encrypt(source, tmp_path / "locked.pdf", user="Zürich", algorithm=algorithm)
    assert next(iter(read(locked, password="Zürich").pages)).text == "secret\n"
    with pytest.raises(PasswordRequired):
        read(locked)
    with pytest.raises(WrongPassword) as caught:
        read(locked, password="guess")
    assert "guess" not in str(caught.value)
    owner_only = encrypt(source, tmp_path / "owner.pdf", user="", algorithm=algorithm)
    assert next(iter(read(owner_only).pages)).text == "secret\n"


def test_flate_bomb_costs_one_page_only(tmp_path) -> None:
    path = make_pdf(tmp_path / "a.pdf", BOMB, show("after"), stream=deflated)
    assert path.stat().st_size < 50_000
    document = read(path)
    assert codes(document) == ["too-complex", ""]
    assert document.pages[1].text == "after\n"


@pytest.mark.parametrize("operators", [b"1 0 0 1 0 0 cm ", b"[[1]] 0 d ", b"0 0 m 9 9 l S "])
def test_much_drawing_does_not_cost_the_text(tmp_path, operators: bytes) -> None:
    document = read(make_pdf(tmp_path / "a.pdf", operators * 90_000 + show("x"), show("after"), stream=deflated))
    assert [page.text for page in document.pages] == ["x\n", "after\n"]


def test_truncated_file_and_broken_table(tmp_path) -> None:
    path = make_pdf(tmp_path / "a.pdf", *(show(f"page {number}") for number in range(8)))
    data = path.read_bytes()
    path.write_bytes(data[: data.index(b"xref\n0 ")])
    assert len(read(path).pages) == 8
    path.write_bytes(data.replace(b"0000000000 65535 f", b"garbage! no table "))
    assert len(read(path).pages) == 8
    path.write_bytes(data[:200])
    with pytest.raises(DocumentError):
        read(path)


def test_damaged_page_does_not_cost_the_others(tmp_path) -> None:
    path = make_pdf(tmp_path / "a.pdf", show("first"), show("second"), stream=deflated)
    data = path.read_bytes()
    start = data.index(b"stream\n", data.index(b"FlateDecode")) + 7
    path.write_bytes(data[:start] + b"\xff" * 20 + data[start + 20 :])
    document = read(path)
    assert codes(document) == ["unreadable", ""]
    assert document.pages[1].text == "second\n"


def test_pages_that_a_cut_off_file_has_lost_are_named(tmp_path) -> None:
    path = make_pdf(tmp_path / "a.pdf", *(show(f"page {number}") for number in range(8)))
    data = path.read_bytes()
    path.write_bytes(data[: data.index(b"\n12 0 obj")])
    document = read(path)
    assert codes(document) == ["", "", "", *["unreadable"] * 5]
    assert document.pages[3].problem == "the content of page 4 is missing from the file"
    assert document.pages[7].problem == "page 8 is missing: the file announces 8 pages and holds 4"


def test_endless_page_tree(tmp_path) -> None:
    path = make_pdf(tmp_path / "a.pdf", show("x"))
    path.write_bytes(path.read_bytes().replace(b"/Kids [5 0 R]", b"/Kids [2 0 R]"))
    with pytest.raises(DocumentError):
        read(path)


def test_deep_page_tree(tmp_path) -> None:
    path = tmp_path / "deep.pdf"
    body = b"%PDF-1.7\n1 0 obj\n<< /Type /Catalog /Pages 2 0 R >>\nendobj\n"
    for number in range(2, 400):
        body += b"%d 0 obj\n<< /Type /Pages /Count 1 /Kids [%d 0 R] >>\nendobj\n" % (number, number + 1)
    body += b"400 0 obj\n<< /Type /Page >>\nendobj\ntrailer\n<< /Root 1 0 R /Size 401 >>\nstartxref\n0\n%%EOF"
    path.write_bytes(body)
    with pytest.raises(EmptyDocument):
        read(path)


def test_words_set_apart_without_space_characters_stay_apart(tmp_path) -> None:
    """A font of glyph numbers without a space: a gap of a quarter em is a space, kerning is none."""

    def glyphs(word: str) -> bytes:
        return b"<" + word.encode("utf-16-be").hex().encode() + b">"

    words = b"-250".join([glyphs("plain"), glyphs("w") + b"-40" + glyphs("ords"), glyphs("apart")])
    content = b"BT /F1 12 Tf 50 700 Td [" + words + b"] TJ ET"
    document = read(make_pdf(tmp_path / "a.pdf", content, font=GLYPH_FONT))
    assert document.pages[0].text == "plain words apart\n"


@pytest.mark.parametrize("names", ["/g{}", "/cid{}", "/G{}"])
def test_glyphs_that_are_only_numbered_are_no_text(tmp_path, names: str) -> None:
    """As htmldoc writes them: a font whose encoding names glyphs by number, which says nothing of letters."""
    differences = " ".join(names.format(number) for number in range(65, 91)).encode()
    font = (
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding << /Type /Encoding /Differences [65 "
        + differences
        + b"] >> >>"
    )
    path = make_pdf(tmp_path / "a.pdf", show("THE KEEPER LIGHTS THE LAMP AT DUSK AND TRIMS ITS WICK"), font=font)
    with pytest.raises(EmptyDocument, match="have no code: its font numbers its glyphs"):
        read(path)


def test_a_few_names_of_glyphs_do_not_cost_a_page(tmp_path) -> None:
    document = read(
        make_pdf(tmp_path / "a.pdf", show("The file /g18 and the folder /c2 hold the letters of the keeper."))
    )
    assert codes(document) == [""]
