"""Pages as pictures: drawn by the limited child, refused with a reason, and passages found on them."""

from __future__ import annotations

import io
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ondevice.documents import read
from ondevice.documents.formats import pdf_picture
from ondevice.documents.pictures import PICTURE_LIMITS, PagePicture, draw_pages, frames
from ondevice.documents.worker import process
from ondevice.errors import DocumentError, DocumentTooComplex
from tests.builders.documents import encrypt, make_pdf, show

fpdf = pytest.importorskip("fpdf")

PARAGRAPH = (
    "The keeper lights the lamp at dusk and trims its wick before the watch begins. In the year 1886 a lens of "
    "224 prisms was hauled up the stairs, and since then no ship was lost on the northern reef."
)
PASSAGE = "a lens of 224 prisms was hauled up the stairs"


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two pages: paragraphs in one column, then in two."""
    pdf = fpdf.FPDF()
    pdf.set_font("helvetica", size=12)
    pdf.add_page()
    pdf.multi_cell(0, 7, "Nothing of note happened. " * 20, new_x="LMARGIN", new_y="NEXT")
    pdf.multi_cell(0, 7, PARAGRAPH)
    pdf.add_page()
    with pdf.text_columns(ncols=2, gutter=10) as columns:
        columns.write("Nothing of note happened. " * 110 + PARAGRAPH)
    path = tmp_path_factory.mktemp("book") / "book.pdf"
    pdf.output(str(path))
    return path


def pixels(picture: PagePicture) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(picture.image)).convert("L"))


def test_a_page_is_drawn_within_its_bound(book: Path) -> None:
    (picture,) = draw_pages(book, 1)
    grey = pixels(picture)
    assert grey.shape == (picture.height, picture.width)
    assert 0.9 * pdf_picture.MOST_PIXELS < grey.size < 1.01 * pdf_picture.MOST_PIXELS
    assert grey.max() > 250, "paper"
    assert grey.min() < 60, "ink"
    assert len(picture.text) == len(picture.places)
    assert PASSAGE.split()[3] in picture.text


@pytest.mark.parametrize("number", [1, 2])
def test_a_passage_is_framed_where_its_letters_stand(book: Path, number: int) -> None:
    page = read(book).pages[number - 1]  # type: ignore[index]
    flat = page.text.replace("\n", " ")
    start = flat.index(PASSAGE[:9], flat.index("1886"))
    stop = flat.index("northern")
    (picture,) = draw_pages(book, number)
    found = frames(picture, page.text, start, stop)
    assert len(found) >= 2, "one a line"
    ink = pixels(picture) < 128
    for left, top, right, bottom in found:
        assert 0 <= left < right <= 10_000
        assert bottom - top < 400, "a line, not a block"
        rows = slice(top * picture.height // 10_000, bottom * picture.height // 10_000)
        columns = slice(left * picture.width // 10_000, right * picture.width // 10_000)
        assert ink[rows, columns].mean() > 0.05, "there are letters in it"
    if number == 2:
        assert all(left > 5_000 for left, *_ in found), "in the second column"


def test_the_frame_holds_exactly_the_letters_of_the_passage(book: Path) -> None:
    page = read(book).pages[0]  # type: ignore[index]
    (picture,) = draw_pages(book, 1)
    start = page.text.index("224")
    ((left, top, right, bottom),) = frames(picture, page.text, start, start + 3)
    inside = [
        character
        for character, (a, b, c, d) in zip(picture.text, picture.places.tolist(), strict=True)
        if a >= left and c <= right and b >= top and d <= bottom and c > a
    ]
    assert "".join(inside) == "224"


def test_the_nearest_of_several_is_framed() -> None:
    text = "lamp lamp lamp"
    places = np.array([[100 * i, 0, 100 * i + 90, 100] if c != " " else [0] * 4 for i, c in enumerate(text)], np.int32)
    picture = PagePicture(b"", 10, 10, text, places)
    for start in (0, 5, 10):
        ((left, _, right, _),) = frames(picture, text, start, start + 4)
        assert (left, right) == (100 * start, 100 * (start + 3) + 90)


def test_spaces_hyphens_ligatures_and_order_do_not_hide_a_passage() -> None:
    def picture_of(text: str) -> PagePicture:
        places = [[10 * i, 0, 10 * i + 9, 100] for i in range(len(text))]
        return PagePicture(b"", 10, 10, text, np.array(places, np.int32))

    for drawn, told in [
        ("the e\ufb03cient lamp", "the efficient lamp"),
        ("light\x02\r\nhouse keeper", "light-\nhouse keeper"),
        ("l a m p  lit", "lamp lit"),
        ("second line here\r\nfirst line there", "first line there\nsecond line here"),
        ("CAF\xc9", "Cafe\u0301"),
    ]:
        assert frames(picture_of(drawn), told, 0, len(told)), (drawn, told)


@pytest.mark.parametrize("passage", ["", "   ", "wholly other words that stand nowhere", "of"])
def test_what_is_not_there_is_not_framed(passage: str) -> None:
    text = "The lamp was lit at dusk."
    picture = PagePicture(b"", 10, 10, text, np.tile(np.array([0, 0, 9, 9], np.int32), (len(text), 1)))
    assert frames(picture, passage, 0, len(passage)) == []


def test_a_page_that_cannot_be_drawn_says_why(book: Path, tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match="page 3 is missing from the file"):
        draw_pages(book, 3)
    broken = tmp_path / "broken.pdf"
    broken.write_bytes(b"%PDF-1.7\nthis is no document\n")
    with pytest.raises(DocumentError, match="too damaged to be drawn"):
        draw_pages(broken, 1)
    locked = encrypt(book, tmp_path / "locked.pdf", user="sesame")
    with pytest.raises(DocumentError, match="encrypted"):
        draw_pages(locked, 1)
    with pytest.raises(DocumentError, match="does not open"):
        draw_pages(locked, 1, "wrong")
    assert draw_pages(locked, 1, "sesame")[0].width > 0


def test_small_pictures_come_together_as_far_as_they_can_be_drawn(book: Path, tmp_path: Path) -> None:
    small = draw_pages(book, 2, width=280, beside=[1, 3, 4])
    assert [picture.width for picture in small] in ([280, 280], [281, 281]), "there are two pages"
    assert all(len(picture.image) < 40_000 and not picture.text for picture in small)
    assert pixels(small[0]).min() < 160, "ink"
    broken = tmp_path / "broken.pdf"
    broken.write_bytes(b"%PDF-1.7\nthis is no document\n")
    with pytest.raises(DocumentError, match="too damaged to be drawn"):
        draw_pages(broken, 1, width=280, beside=[2])


def test_pages_without_text_are_drawn_without_places(tmp_path: Path) -> None:
    (picture,) = draw_pages(make_pdf(tmp_path / "a.pdf", b"0 0 200 200 re f"), 1)
    assert picture.text == ""
    assert picture.places.shape == (0, 4)
    assert pixels(picture).min() < 20


@pytest.mark.parametrize("box", [b"0 0 1000000 2", b"0 0 1 1", b"0 0 0 0", b"-5000 -5000 5000 5000", b"0 0 nan inf"])
def test_absurd_sizes_of_a_page_stay_within_the_bound(tmp_path: Path, box: bytes) -> None:
    path = make_pdf(tmp_path / "a.pdf", show("text"))
    path.write_bytes(path.read_bytes().replace(b"[0 0 595 842]", b"[" + box + b"]"))
    try:
        (picture,) = draw_pages(path, 1)
    except DocumentError:
        return
    assert picture.width * picture.height <= 1.05 * pdf_picture.MOST_PIXELS + picture.width + picture.height


def test_a_page_that_takes_too_long_is_given_up(tmp_path: Path) -> None:
    slow = make_pdf(tmp_path / "slow.pdf", b"0 0 595 842 re W n /Sh sh " + b"10 10 500 800 re S\n" * 400_000)
    with pytest.raises(DocumentTooComplex, match=r"longer than 0\.05 seconds"):
        draw_pages(slow, 1, limits=replace(PICTURE_LIMITS, wall_seconds=0.05))
    # Without room either the library breaks down, or Python says so before it.
    with pytest.raises(
        DocumentError, match=r"cannot be drawn: the parser broke down|takes more memory than is allowed"
    ):
        draw_pages(slow, 1, limits=replace(PICTURE_LIMITS, memory_bytes=60_000_000))


def worker_that(does: str) -> str:
    """What a worker runs instead of its own."""
    return f"import sys; sys.path.append(sys.argv[1])\n{textwrap.dedent(does)}"


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ImportError("unicodedata.so: failed to map segment from shared object"), "takes more memory than is allowed"),
        (OSError("libpdfium.so: Cannot allocate memory"), "takes more memory than is allowed"),
        (ImportError("no such name"), r"damaged or not what its name says \[ImportError\]"),
    ],
)
def test_a_library_that_finds_no_room_is_no_damaged_file(
    book: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, told: str
) -> None:
    body = f"""
        from ondevice.documents.worker import worker
        def without_room(name):
            raise {error!r}
        worker.importlib.import_module = without_room
        worker.main()
    """
    monkeypatch.setattr(process, "_BOOTSTRAP", worker_that(body))
    with pytest.raises(DocumentError, match=told):
        draw_pages(book, 1)


@pytest.mark.parametrize(
    "message",
    [
        {"type": "page"},
        {"type": "picture", "width": 10**9, "height": 1, "image": "", "text": "", "places": []},
        {"type": "picture", "width": 1, "height": 1, "image": "?", "text": "", "places": []},
        {"type": "picture", "width": 1, "height": 1, "image": "", "text": "ab", "places": [1, 2, 3]},
        {"type": "picture", "width": 1, "height": 1, "image": "", "text": "a", "places": ["b", None, {}, []]},
    ],
)
def test_a_worker_that_sends_nonsense_is_not_believed(
    book: Path, monkeypatch: pytest.MonkeyPatch, message: dict[str, object]
) -> None:
    body = f"""
        from ondevice.documents.worker.wire import write_message
        sys.stdin.buffer.read()
        write_message(sys.stdout.buffer, {message!r})
    """
    monkeypatch.setattr(process, "_BOOTSTRAP", worker_that(body))
    with pytest.raises(DocumentError, match="cannot be drawn"):
        draw_pages(book, 1)


def test_the_parent_never_loads_the_drawing_library() -> None:
    """In a process of its own: this file has it for its bounds."""
    code = (
        "import sys; import ondevice.documents.pictures, ondevice.ui.page_routes, ondevice.serving.jobs\n"
        "sys.exit(any(name.startswith('pypdfium2') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
