"""A PDF's pages as pictures beside the answer, in a real browser: the passage framed, by mouse and by keyboard."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("playwright", reason="playwright is not installed")

from ondevice.errors import DocumentError
from ondevice.serving.page_file import PageFile
from tests.browser.driver import Visit, new_context, visiting
from tests.browser.screenshots import sample_pdf
from tests.builders.documents import make_pdf, show
from tests.builders.models import plain_config, plain_generation
from tests.builders.screens import POT, tiny_engine

pytestmark = pytest.mark.slow

ENGINE = tiny_engine(plain_config(pot=POT, generation=plain_generation(max_new_tokens=12)))
SERVED = {"keeps": False}
_SETTLED = ".od-sheet[data-settled=true]"


def open_and_ask(visit: Visit, folder: Path) -> None:
    visit.upload(str(sample_pdf(folder / "lighthouse.pdf")))
    visit.state("read")
    visit.ask("How many steps?")
    visit.until(lambda: visit.page.locator("#od-chat .thought-group").count() == 1, "answered")


def test_a_source_is_framed_on_the_picture_of_its_page(visit: Visit, tmp_path: Path) -> None:
    page = visit.page
    open_and_ask(visit, tmp_path)
    page.click("[data-view=page]")
    page.wait_for_selector(_SETTLED)
    assert page.locator(".od-paper img").evaluate("(image) => image.naturalWidth") > 1000
    assert not page.is_visible(".od-text")
    first, source = (page.locator(".od-source b").nth(at).inner_text().split("Page ")[1] for at in (0, -1))
    page.wait_for_selector(f".od-sheet[data-page='{first}'] .od-frames i")  # the first one opens by itself
    page.locator(".od-source").last.click()
    page.wait_for_selector(f"{_SETTLED}[data-page='{source}'] .od-frames i")
    named = int(source)
    assert page.input_value(".od-page input") == str(named)
    is_in_view = """() => { const frame = document.querySelector(".od-frames i").getBoundingClientRect();
        const box = document.querySelector(".od-sheet").getBoundingClientRect();
        return frame.top >= box.top && frame.bottom <= box.bottom && frame.width > 20; }"""
    assert page.evaluate(is_in_view)
    page.click("[data-view=text]")
    page.wait_for_selector(".od-text .od-flash")
    assert not page.is_visible(".od-sheet")
    assert page.get_attribute(".od-text", "data-page") == str(named), "the text is at the same passage"


def test_pages_are_turned_and_enlarged_with_the_keyboard(visit: Visit, tmp_path: Path) -> None:
    page = visit.page
    open_and_ask(visit, tmp_path)
    page.locator("[data-view=page]").press("Enter")
    page.wait_for_selector(_SETTLED)
    sheet, number = page.locator(".od-sheet"), 2
    page.fill(".od-page input", str(number))
    page.press(".od-page input", "Enter")
    page.wait_for_selector(f"{_SETTLED}[data-page='{number}']")
    sheet.press("ArrowRight")
    page.wait_for_selector(f"{_SETTLED}[data-page='{number + 1}']")
    sheet.press("PageUp")
    page.wait_for_selector(f"{_SETTLED}[data-page='{number}']")
    width = page.locator(".od-paper").evaluate("(paper) => paper.clientWidth")
    sheet.press("+")
    visit.until(lambda: page.locator(".od-paper").evaluate("(p) => p.clientWidth") > 1.7 * width, "twice as large")
    assert page.get_attribute("[data-sheet=zoom]", "aria-pressed") == "true"
    sheet.press("-")
    page.fill(".od-page input", "3")
    page.press(".od-page input", "Enter")
    page.wait_for_selector(f"{_SETTLED}[data-page='3']")


def test_a_page_that_cannot_be_drawn_says_why_and_text_has_no_pages(
    visit: Visit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = visit.page
    path = sample_pdf(tmp_path / "lighthouse.pdf")
    monkeypatch.setattr("ondevice.serving.page_file.PageFile.page", _fails)
    visit.upload(str(path))
    visit.state("read")
    page.click("[data-view=page]")
    visit.until(lambda: "it is too damaged to be drawn" in visit.text(".od-sheet-said"), "it says why")
    assert not page.is_visible(".od-paper")
    notes = tmp_path / "notes.txt"
    notes.write_text("The lamp was lit at dusk. " * 40, encoding="utf-8")
    visit.upload(str(notes))
    visit.until(lambda: "notes.txt" in visit.text("#od-card"), "the other one is shown")
    visit.until(lambda: not page.is_visible(".od-views"), "a text has no pages to draw")
    page.locator(".od-text").wait_for()


def test_a_reason_that_passes_is_asked_for_again(visit: Visit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page, draw, is_busy = visit.page, PageFile.page, [True]

    def busy(self: PageFile, number: int, width: int = 0) -> Any:
        if is_busy[0] and number == 1:
            raise DocumentError("other pages are being drawn", where="page 1", fix="Try again.")
        return draw(self, number, width)

    monkeypatch.setattr(PageFile, "page", busy)
    visit.upload(str(sample_pdf(tmp_path / "lighthouse.pdf")))
    visit.state("read")
    page.click("[data-view=page]")
    visit.until(lambda: "other pages are being drawn" in visit.text(".od-sheet-said"), "it says why")
    is_busy[0] = False
    page.locator(".od-sheet").press("ArrowRight")
    page.wait_for_selector(f"{_SETTLED}[data-page='2']")
    page.locator(".od-sheet").press("ArrowLeft")
    page.wait_for_selector(f"{_SETTLED}[data-page='1']")
    visit.until(lambda: page.is_visible(".od-paper"), "the picture")


def test_a_picture_that_comes_late_is_none_of_the_next_document(visit: Visit, tmp_path: Path) -> None:
    page = visit.page
    visit.upload(str(sample_pdf(tmp_path / "lighthouse.pdf")))
    visit.state("read")
    page.evaluate("""() => {
        const blob = Response.prototype.blob, held = new Promise((go) => { window.letGo = go; });
        window.asked = [];
        Response.prototype.blob = async function () {
            window.asked.push(this.url);
            if (window.asked.length === 1) await held;
            return blob.call(this);
        };
    }""")
    page.click("[data-view=page]")
    visit.until(lambda: page.evaluate("window.asked.length") == 1, "the first picture is on its way")
    other = make_pdf(tmp_path / "lamp.pdf", *(show(f"The lamp was lit at dusk, {i} times.") for i in range(20)))
    visit.upload(str(other))
    visit.until(lambda: "lamp.pdf" in visit.text("#od-card"), "the other one is shown")
    visit.until(lambda: page.get_attribute(".od-reader", "data-view") == "text", "its text")
    page.evaluate("window.letGo()")
    page.wait_for_timeout(200)
    page.click("[data-view=page]")
    page.wait_for_selector(_SETTLED)
    assert page.evaluate("window.asked.length") == 2, "its own picture was asked for"


def _fails(*_: Any) -> Any:
    raise DocumentError("it is too damaged to be drawn", where="page 1")


@pytest.mark.parametrize(("width", "height", "scheme"), [(390, 844, "light"), (1024, 768, "dark")])
def test_the_picture_fits_its_pane(
    program: Any, url: str, tmp_path: Path, width: int, height: int, scheme: str
) -> None:
    context = new_context(program, width=width, height=height, color_scheme=scheme)
    with visiting(context, url) as visit:
        page = visit.page
        open_and_ask(visit, tmp_path)
        page.locator("#od-chat .thought-group .title button").click()
        page.locator("#od-chat a[href^='#passage-']").first.click()  # a phone goes to the document by itself
        page.click("[data-view=page]")
        page.wait_for_selector(_SETTLED)
        box, paper = (page.locator(name).bounding_box() for name in (".od-sheet", ".od-paper"))
        assert box is not None
        assert paper is not None
        assert box["x"] <= paper["x"]
        assert paper["x"] + paper["width"] <= box["x"] + box["width"] + 1
        assert box["height"] > 100
        assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0
        assert page.evaluate("document.documentElement.scrollHeight - document.documentElement.clientHeight") <= 0
        assert visit.errors == []
        assert visit.foreign == []
    context.close()
