"""Several documents and the library in a real browser, and reloads in the middle of all of it."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("playwright", reason="playwright is not installed")

from ondevice.config import PotConfig
from tests.browser.driver import Visit, expect
from tests.builders.models import plain_config, plain_generation
from tests.builders.screens import Gate, tiny_engine

POT = PotConfig(capacity=1024, num_kept=256, reserve=256, step_size=256)
ENGINE = tiny_engine(plain_config(pot=POT, generation=plain_generation(max_new_tokens=40)))
SERVED = {"reads_at_once": False}

# Keeps the page from drawing while updates arrive, so that several stand in line.
BUSY = """() => {
    const busy = () => { const end = performance.now() + 400; while (performance.now() < end); };
    const fetch = window.fetch;
    window.fetch = async (...request) => {
        const response = await fetch(...request);
        const address = String(request[0]?.url ?? request[0]);
        if (address.includes("queue/data")) for (const ms of [5, 10, 15]) setTimeout(busy, ms);
        return response;
    };
}"""


def files(folder: Path, **contents: bytes) -> list[str]:
    paths = []
    for name, content in contents.items():
        path = folder / f"{name}.txt"
        path.write_bytes(content)
        paths.append(str(path))
    return paths


def test_several_files_at_once(visit: Visit, tmp_path: Path) -> None:
    page = visit.page
    paths = files(tmp_path, first=b"One, two. " * 300, broken=b"\x89PNG\r\n\x1a\n" * 9, last=b"Three, four. " * 300)
    page.set_input_files("#od-file input[type=file]", paths)
    listed = page.locator("#od-documents label", has_not_text="together")
    visit.until(lambda: "broken.txt" in visit.text("#od-problem"), "the bad file is named")
    visit.until(lambda: listed.count() == 2, "the others are listed")
    visit.until(lambda: page.get_by_role("radio", name="last.txt").is_checked(), "the last one is looked at")
    page.click("#od-read")
    visit.state("read")
    page.get_by_role("radio", name="first.txt").check(force=True)
    visit.state("ready")
    assert "first.txt" in visit.text("#od-card")
    page.click("#od-read")
    visit.state("read")
    visit.until(lambda: "2 pots in memory" in visit.text("#od-memory"), "all pots are counted")
    visit.close_document()
    visit.until(lambda: "last.txt" in visit.text("#od-card"), "the other one is shown")
    expect(page.locator("#od-documents")).not_to_be_visible()


def test_a_page_acts_only_on_the_document_that_it_shows(visit: Visit, tmp_path: Path) -> None:
    visit.open_sample()
    other = visit.page.context.new_page()
    other.add_init_script("sessionStorage.visited = 1")
    other.goto(visit.url)
    other.wait_for_selector("body[data-state=ready]")
    other.set_input_files("#od-file input[type=file]", files(tmp_path, other=b"One, two. " * 300))
    other.get_by_role("radio", name="other.txt").wait_for()
    assert "lighthouse.md" in visit.text("#od-card"), "this page has not heard of it"
    visit.close_document()
    visit.until(lambda: "Nothing was done" in visit.text("#od-problem"), "it says so")
    assert "other.txt" in visit.text("#od-card"), "and shows what is looked at now"
    visit.close_document()
    visit.until(lambda: "lighthouse.md" in visit.text("#od-card"), "what it shows can be closed")
    visit.page.click("#od-read")
    visit.state("read")
    other.close()


def test_a_reload_in_the_middle_of_reading_loses_nothing(visit: Visit, monkeypatch: pytest.MonkeyPatch) -> None:
    page = visit.page
    visit.open_sample()
    gate = Gate(monkeypatch, ENGINE, 12)
    page.click("#od-read")
    bar = page.get_by_role("progressbar", name="Tokens read")
    visit.until(lambda: int(bar.get_attribute("aria-valuenow") or 0) > 0, "reading has begun")
    visit.reload()
    visit.state("reading")
    gate.open()
    visit.state("read")
    assert bar.get_attribute("aria-valuenow") == bar.get_attribute("aria-valuemax")


def test_a_reload_in_the_middle_of_an_answer_loses_nothing(visit: Visit, monkeypatch: pytest.MonkeyPatch) -> None:
    page = visit.page
    visit.read_sample()
    gate = Gate(monkeypatch, ENGINE, 5)
    visit.ask("How many steps?")
    visit.state("answering")
    visit.reload()
    visit.state("answering")
    expect(page.locator("#od-stop-answer")).to_be_visible()
    gate.open()
    visit.until(lambda: page.locator("#od-chat .thought-group").count() == 1, "the answer ends with its account")
    assert "was stopped" not in visit.text("#od-chat .thought-group")


def test_a_document_is_saved_renamed_reopened_and_deleted(visit: Visit) -> None:
    page = visit.page
    visit.read_sample()
    visit.ask("How many steps?")
    visit.until(lambda: page.locator("#od-chat .thought-group").count() == 1, "answered")
    page.click("#od-save")
    visit.until(lambda: "Save again" in visit.text("#od-save"), "it is saved")
    visit.close_document()
    visit.state("empty")
    entry, more = page.locator("#od-library .od-entry"), page.locator("#od-library .od-entry summary")
    entry.wait_for()
    assert "lighthouse.md" in entry.inner_text()
    expect(page.locator(".od-library")).to_have_attribute("open", "")
    more.press("Enter")
    field = entry.get_by_label("Name")
    assert field.input_value() == "lighthouse.md"
    field.fill("<b>${window.hit=1}</b> keeper")
    field.press("Enter")
    visit.until(lambda: "keeper" in entry.locator("b").inner_text(), "it has the new name")
    assert entry.locator("b").inner_text() == "<b>${window.hit=1}</b> keeper"
    assert page.evaluate("window.hit") is None
    expect(more).to_be_focused()
    page.get_by_role("button", name="Open <b>${window.hit=1}</b> keeper").press("Enter")
    visit.state("read")
    visit.until(lambda: entry.count() == 0, "it stands in the list once")
    expect(page.locator("#od-question textarea")).to_be_focused()
    visit.until(lambda: page.locator("#od-chat .thought-group").count() == 1, "the conversation is back")
    assert "lighthouse.md" in visit.text("#od-card")
    visit.ask("And then?")
    visit.until(lambda: page.locator("#od-chat .thought-group").count() == 2, "no reading again is needed")
    assert "Saved documents stay in" in page.locator(".od-library").text_content()
    visit.close_document()
    visit.state("empty")
    more.click()
    remove = entry.get_by_role("button", name="Delete")
    remove.click()
    page.keyboard.press("Escape")
    expect(remove).to_be_focused()
    remove.click()
    page.get_by_role("button", name="Delete for good").click()
    visit.until(lambda: entry.count() == 0, "it has gone")
    expect(page.locator(".od-library")).to_be_hidden()
    expect(page.locator("#od-sample")).to_be_focused()


@pytest.mark.slow
def test_one_of_many_saved_documents_is_found_by_its_name(visit: Visit, tmp_path: Path) -> None:
    page = visit.page
    for name in "abcdefg":
        visit.upload(files(tmp_path, **{f"lamp {name}": b"One, two. " * 30})[0])
        visit.state("ready")
        page.click("#od-read")
        visit.state("read")
        page.click("#od-save")
        visit.until(lambda: "Save again" in visit.text("#od-save"), "it is saved")
        visit.close_document()
        visit.state("empty")
    entries = page.locator("#od-library .od-entry:visible")
    visit.until(lambda: entries.count() == 7, "all are listed")
    page.get_by_label("Find a saved document").fill("LAMP C")
    visit.until(lambda: entries.count() == 1, "only that one")
    entries.locator(".od-open").click()
    visit.state("read")
    assert "lamp c.txt" in visit.text("#od-card")
    expect(page.locator(".od-library")).not_to_have_attribute("open", "")


@pytest.mark.slow
def test_a_busy_page_shows_how_quick_work_ended(visit: Visit) -> None:
    visit.open_sample()
    visit.page.click("#od-read")
    visit.state("read")
    visit.page.evaluate(BUSY)
    visit.page.click("#od-save")
    visit.until(lambda: visit.page.locator("#od-save", has_text="Save again").count() == 1, "it is saved")
    visit.state("read")


@pytest.mark.slow
def test_the_chosen_one_of_many_documents_and_reading_stay_in_view(visit: Visit, tmp_path: Path) -> None:
    page = visit.page
    (tmp_path / "other").mkdir()
    name = "a very long name " * 9 + "end"
    written = dict.fromkeys(("b", "c", "d", "e", "f", name), b"The lamp is lit. " * 20)
    more = files(tmp_path / "other", b=b"Another text of the same name. " * 20)
    visit.page.set_input_files("#od-file input[type=file]", [*files(tmp_path, **written), *more])
    listed = page.locator("#od-documents label", has_not_text="together")
    visit.until(lambda: listed.count() == 7, "all are listed")
    visit.until(lambda: "b.txt (2)" in listed.last.inner_text(), "two of the same name can be told apart")
    visit.until(lambda: all("not read yet" in one for one in listed.all_inner_texts()), "all are open")
    in_view = """() => { const box = document.querySelector("#od-documents label.selected")?.getBoundingClientRect();
        const list = document.querySelector("#od-documents .wrap:has(> label)").getBoundingClientRect();
        const pane = document.querySelector("#od-left > #od-document").getBoundingClientRect();
        return box && box.top >= Math.max(list.top, pane.top) - 1
            && box.bottom <= Math.min(list.bottom, pane.bottom) + 1; }"""
    reading = """() => ["#od-read", "#od-progress", "[data-drawer-button=settings]"].every((selector) => {
        const box = document.querySelector(selector).getBoundingClientRect();
        const pane = document.querySelector("#od-left").getBoundingClientRect();
        return box.height > 0 && box.top >= pane.top && box.bottom <= pane.bottom + 1; })"""
    for width, height in ((1280, 860), (1024, 768)):
        page.set_viewport_size({"width": width, "height": height})
        for at in (6, 0, 5, 6):
            listed.nth(at).click()
            visit.until(lambda at=at: listed.nth(at).locator("input").is_checked(), "it is chosen")
            visit.until(lambda: page.evaluate(in_view), "the chosen one is in view")
        visit.until(lambda: page.evaluate(reading), "so is what reads it")
    page.set_viewport_size({"width": 1280, "height": 860})
    for number in range(6, -1, -1):
        page.wait_for_timeout(300)  # a second click before the first is done with is left out
        visit.close_document()
        visit.until(lambda number=number: listed.count() == (number if number > 1 else 0), "it is closed")


@pytest.mark.slow
def test_what_is_told_in_passing_covers_nothing_of_use(visit: Visit) -> None:
    page = visit.page
    visit.read_sample()
    page.click("#od-save")
    toast = page.locator(".toast-body")
    visit.until(lambda: toast.count() == 1 and toast.is_visible(), "it is told")
    assert toast.inner_text().replace("×", "").strip().startswith("Saved to the library"), "without a head"  # noqa: RUF001
    overlaps = """() => { const one = document.querySelector(".toast-body").getBoundingClientRect();
        return [...document.querySelectorAll("#od-header :is(h1, .od-badge), #od-right button")]
            .map((other) => [other.outerHTML, other.getBoundingClientRect()])
            .filter(([_, box]) => box.width > 0 && one.left < box.right && box.left < one.right && one.top < box.bottom
                && box.top < one.bottom).map(([html]) => html); }"""
    assert page.evaluate(overlaps) == []
