"""Headings of documents: how they are known in a PDF, kept beside its tokens, and shown without their marks."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from pypdf import PdfReader, PdfWriter

from ondevice.documents import Document, Page
from ondevice.documents.formats.opening import open_document
from ondevice.documents.formats.reader import Request
from ondevice.documents.shown import as_shown, passage, without_gone
from ondevice.serving.workspace import Workspace
from ondevice.ui.composer import examples
from tests.builders.documents import make_odt, make_pdf, make_raw_docx
from tests.builders.models import by_letter, tokenised

BODY = [f"Words of the body fill this line, number {number}" for number in range(6)]


def drawn(*lines: tuple[str, float, str]) -> bytes:
    """Lines one below the other: text, size, font."""
    content, y = "", 700.0
    for text, size, font in lines:
        y -= 2 * size
        content += f"BT /{font} {size} Tf 1 0 0 1 72 {y} Tm ({text}) Tj ET\n"
    return content.encode()


def body() -> list[tuple[str, float, str]]:
    return [(line, 10, "F1") for line in BODY]


def texts(path: Path) -> list[str]:
    return [page.text for page in open_document(Request(str(path))).pages]


def headings(text: str) -> list[str]:
    return [line for line in text.split("\n") if line.startswith("#")]


def test_larger_lines_of_a_pdf_are_headings_and_two_of_a_size_are_one(tmp_path: Path) -> None:
    lines = [("On Boats and", 20, "F1"), ("their Sails", 20, "F1"), *body(), ("Tides", 13, "F1"), *body()]
    [text] = texts(make_pdf(tmp_path / "a.pdf", drawn(*lines)))
    assert headings(text) == ["## On Boats and their Sails", "### Tides"]


@pytest.mark.parametrize(
    "larger",
    [
        ("as in every year (between May and September)", "They go on."),
        ("Boats that are laid up (from May to September)", "are caulked."),
    ],
)
def test_a_larger_line_of_a_sentence_that_goes_on_is_no_heading(tmp_path: Path, larger: tuple[str, str]) -> None:
    line, after = larger
    lines = [("Tides", 13, "F1"), *body(), (line, 12, "F1"), (after, 10, "F1"), *body()]
    [text] = texts(make_pdf(tmp_path / "a.pdf", drawn(*lines)))
    assert headings(text) == ["### Tides"]


@pytest.mark.parametrize(
    ("angle", "frame"), [(90, "0 1 -1 0 700 0"), (180, "-1 0 0 -1 595 842"), (270, "0 -1 1 0 -200 842")]
)
def test_pages_that_are_shown_turned_have_headings_too(tmp_path: Path, angle: int, frame: str) -> None:
    content = f"{frame} cm ".encode() + drawn(("Tides", 20, "F1"), *body())
    path = make_pdf(tmp_path / "a.pdf", content, page=b"/Rotate %d" % angle)
    assert texts(path)[0].split("\n")[:2] == ["## Tides", BODY[0]]


def test_a_heading_may_begin_its_page_and_a_header_with_the_number_of_the_page_is_none(tmp_path: Path) -> None:
    def page(*first: str) -> bytes:
        at = (f"BT /F1 16 Tf 1 0 0 1 72 {800 - 20 * n} Tm ({line}) Tj ET\n" for n, line in enumerate(first))
        return "".join(at).encode() + drawn(*body())

    contents = page("Ferry"), page("Lighthouse"), page("Volume 7, page 3"), page("4 Winter")
    found = [headings(text) for text in texts(make_pdf(tmp_path / "a.pdf", *contents))]
    assert found == [["## Ferry"], ["## Lighthouse"], [], ["## 4 Winter"]]


def test_an_outline_says_what_the_headings_of_a_pdf_are(tmp_path: Path) -> None:
    path = make_pdf(tmp_path / "a.pdf", drawn(("2.1 Tides", 10, "F1"), *body(), ("A large line", 20, "F1")))
    writer = PdfWriter(clone_from=PdfReader(path))
    above = writer.add_outline_item("Boats", page_number=0)
    writer.add_outline_item("Tides", page_number=0, parent=above)
    stored = io.BytesIO()
    writer.write(stored)
    path.write_bytes(stored.getvalue())
    assert headings(texts(path)[0]) == ["### 2.1 Tides"]


def test_short_bold_lines_are_headings_whose_numbers_say_their_level(tmp_path: Path) -> None:
    lines = [("Abstract", 10, "F2"), *body(), ("1 Boats", 10, "F2"), *body(), ("1.1 Sails", 10, "F2"), *body()]
    bold = [
        ("- A point", 10, "F2"),
        ("Figure 3 shows boats", 10, "F2"),
        ("A sentence ends.", 10, "F2"),
        ("Thanks", 10, "F2"),
        *body(),
    ]
    [first, second] = texts(make_pdf(tmp_path / "a.pdf", drawn(*lines), drawn(*body(), *bold)))
    assert headings(first) == ["#### Abstract", "## 1 Boats", "### 1.1 Sails"]
    assert headings(second) == ["### Thanks"]


@pytest.mark.parametrize(
    ("name", "level"), [("heading 2", "###"), ("heading 8", "#######"), ("Title", "##"), ("Normal", "")]
)
def test_headings_of_word_have_the_level_of_their_style(tmp_path: Path, name: str, level: str) -> None:
    names = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
    styles = f'<w:styles {names}><w:style w:styleId="own"><w:name w:val="{name}"/></w:style></w:styles>'
    title = '<w:p><w:pPr><w:pStyle w:val="own"/></w:pPr><w:r><w:t>Tides</w:t></w:r></w:p>'
    [text] = texts(make_raw_docx(tmp_path / "a.docx", title, styles=styles))
    assert text == f"{level} Tides".strip() + "\n\n"


def test_headings_of_opendocument_have_their_level(tmp_path: Path) -> None:
    body = '<text:h text:outline-level="3">Sails</text:h><text:h text:outline-level="x">Two</text:h><text:p>a</text:p>'
    assert texts(make_odt(tmp_path / "a.odt", body)) == ["#### Sails\n\n## Two\n\na\n\n"]


def test_marks_are_not_shown_where_they_are_ours() -> None:
    text = "## Boats\nTwo of them\n# a note\n"
    for kind in ("pdf", "docx", "html"):
        assert without_gone(as_shown(kind)(text)) == text.removeprefix("## ")
        assert len(as_shown(kind)(text)) == len(text)
        assert passage("### Boats", kind) == "Boats"
    assert as_shown("txt")(text) == passage(text, "txt") == text


def test_an_empty_conversation_offers_the_longest_sections() -> None:
    long = "## A\n\nshort\n\n" + "".join(f"## {name}\n\n{'word ' * 60 * size}\n\n" for name, size in SECTIONS)
    workspace = Workspace("0")
    assert len(examples(workspace)) == 3
    workspace.tokens = tokenised(Document("a.docx", "docx", "section", (Page(1, long),), 1), by_letter)
    assert [one["text"] for one in examples(workspace)] == [
        "What is this document about?", "Summarise \u201cSails\u201d", "Summarise \u201cTides\u201d",
    ]  # fmt: skip


SECTIONS = (("Sails", 3), ("Boats", 1), ("Tides", 2), ("End", 1))
