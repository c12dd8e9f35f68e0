"""Pages of a PDF on the map, where nothing had to be dropped: in a real browser, by mouse, keyboard and finger."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("playwright", reason="playwright is not installed")
pytest.importorskip("axe_playwright_python", reason="axe-playwright-python is not installed")

from ondevice.config import PotConfig
from tests.browser.axe import serious_violations
from tests.browser.driver import Visit, new_context, visiting
from tests.browser.screenshots import sample_pdf
from tests.builders.documents import make_pdf, show
from tests.builders.models import plain_config, plain_generation
from tests.builders.screens import Gate, tiny_engine

POT = PotConfig(capacity=1 << 14, num_kept=1 << 13)
ENGINE = tiny_engine(plain_config(pot=POT, generation=plain_generation(max_new_tokens=12)))
SERVED = {"keeps": False}
LEAF, PIN = ".od-leaves li button", ".od-leaves .od-pin:visible"
# The page on which each pin stands, and the page of its passage.
PINNED = """() => [...document.querySelectorAll(".od-leaves .od-pin")].map((pin) => {
    const { left, top, width, height } = pin.getBoundingClientRect(), [x, y] = [left + width / 2, top + height / 2];
    const on = [...document.querySelectorAll(".od-leaves li")].find((leaf) => {
        const box = leaf.querySelector(".od-leaf").getBoundingClientRect();
        return x > box.left - 2 && x < box.right + 2 && y > box.top && y < box.bottom; });
    return [on?.innerText.trim(), pin.title.match(/[Pp]age (\\d+)/)[1]]; })"""


def drawn(visit: Visit) -> None:
    visit.page.wait_for_selector(".od-leaves[data-settled=true]")


def asked(visit: Visit, folder: Path) -> None:
    visit.upload(str(sample_pdf(folder / "lighthouse.pdf")))
    visit.state("read")
    visit.ask("How many steps?")
    visit.answered(1)


def test_a_pdf_that_fits_shows_its_pages_with_pins_where_the_answer_looked(visit: Visit, tmp_path: Path) -> None:
    page = visit.page
    asked(visit, tmp_path)
    assert page.is_hidden(".od-leaves"), "the strip stays as it is"
    visit.grow_map()
    drawn(visit)
    count = page.evaluate("ondevice.tokens.summary.num_pages")
    assert page.locator(LEAF).all_inner_texts() == [str(i + 1) for i in range(count)]
    assert page.locator(".od-leaf img").first.evaluate("(image) => image.naturalWidth") < 300
    assert "nothing had to be dropped" in visit.text(".od-map-place")
    assert page.is_hidden(".od-map ~ .od-pins .od-pin >> nth=0"), "each pin once"
    visit.until(lambda: page.locator(".od-leaf .od-frames i").count() > 0, "passages are framed")
    pinned = page.evaluate(PINNED)
    assert pinned
    assert all(on == named for on, named in pinned)
    assert serious_violations(visit) == []
    page.locator(LEAF).nth(2).click()
    page.wait_for_selector(".od-sheet[data-settled=true][data-page='3']")
    page.click("[data-step=back]")
    page.locator(PIN).last.click()
    page.wait_for_selector(f".od-sheet[data-settled=true][data-page='{pinned[-1][1]}'] .od-frames i")
    page.locator(f"{LEAF}[tabindex='0']").focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.innerText").strip() == "2"
    page.keyboard.press("Enter")
    page.wait_for_selector(".od-sheet[data-settled=true][data-page='2']")
    page.keyboard.press("Tab")
    assert "od-pin" in page.evaluate("document.activeElement.className"), "one stop for all pages"
    page.click("[data-map=experts]")
    visit.until(lambda: page.is_hidden(".od-leaves") and page.is_visible("[data-zoom=in]"), "the cells of old")


@pytest.mark.slow
def test_text_and_what_does_not_fit_have_no_leaves(visit: Visit, tmp_path: Path) -> None:
    page = visit.page
    notes = tmp_path / "notes.txt"
    notes.write_text("The lamp was lit at dusk. " * 40, encoding="utf-8")
    visit.upload(str(notes))
    visit.state("read")
    visit.grow_map()
    page.wait_for_selector(".od-whole:not([hidden])")
    assert page.is_hidden(".od-leaves")
    large = make_pdf(tmp_path / "large.pdf", *(show(f"The lamp was lit at dusk, {i} times.") for i in range(600)))
    visit.upload(str(large))
    visit.until(lambda: "large.pdf" in visit.text("#od-card"), "the other one is shown")
    visit.until(lambda: page.evaluate("ondevice.tokens.summary?.num_read > 3_000"), "it is being read")
    assert page.is_hidden(".od-leaves"), "which would be gone later"
    visit.state("read")
    assert page.evaluate("ondevice.tokens.summary.num_held < ondevice.tokens.summary.num_tokens")
    assert page.is_hidden(".od-leaves")
    assert page.is_hidden(".od-whole")


@pytest.mark.slow
def test_what_is_not_read_yet_is_pale_and_few_pictures_are_asked_for(
    program: Any, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a phone: many pages are more than are in view."""
    texts = (show(f"The lamp was lit at dusk, {i} times.") for i in range(200))
    path, gate = make_pdf(tmp_path / "many.pdf", *texts), Gate(monkeypatch, ENGINE, 3)
    context = new_context(program, width=390, height=844, color_scheme="dark")
    with visiting(context, url) as visit:
        page, pictures = visit.page, list[str]()
        page.on("request", lambda request: "/picture?" in request.url and pictures.append(request.url))
        visit.upload(str(path))
        visit.until(lambda: page.evaluate("ondevice.tokens?.summary?.num_read ?? 0") > 0, "some of it is read")
        page.click("[data-pane-button=map]")
        drawn(visit)
        at = page.evaluate("ondevice.tokens.pageIndex(ondevice.tokens.summary.num_read - 1) + 1")
        visit.until(lambda: f"Page {at} of 200 read" in visit.text(".od-map-place"), "it says how far")
        labels = page.locator(LEAF).evaluate_all("(all) => all.map((one) => one.getAttribute('aria-label'))")
        assert [("not read yet" in label) for label in labels] == [i >= at for i in range(200)]
        assert 0 < len(pictures) < 60
        assert all("width=280" in address for address in pictures)
        assert serious_violations(visit) == []
        gate.open()
        visit.until(lambda: "nothing had to be dropped" in visit.text(".od-map-place"), "all of it is read")
        page.locator(LEAF).last.click()
        page.wait_for_selector(".od-sheet[data-settled=true][data-page='200']")
        assert page.evaluate("document.body.dataset.pane") == "document"
        assert visit.errors == []
        assert visit.foreign == []
    context.close()
