"""From a document to an answer without a further click, as the app is by default."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("playwright", reason="playwright is not installed")

from ondevice.documents import extract
from tests.browser.driver import Visit, expect, new_context, visiting
from tests.builders.models import plain_config, plain_generation
from tests.builders.screens import POT, slow_down, tiny_engine

ENGINE = tiny_engine(plain_config(pot=POT, generation=plain_generation(max_new_tokens=12)))
_DROP = """(text) => {
    const data = new DataTransfer();
    data.items.add(new File([text], "dropped.txt", { type: "text/plain" }));
    const event = { dataTransfer: data, bubbles: true, cancelable: true };
    const target = document.querySelector("#od-chat");
    const over = new DragEvent("dragover", event);
    target.dispatchEvent(over);
    target.dispatchEvent(new DragEvent("drop", event));
    return over.defaultPrevented; }"""
_OVERFLOW = """() => { const page = document.documentElement;
    return [page.scrollHeight - page.clientHeight, page.scrollWidth - page.clientWidth]; }"""
# A message is drawn anew when it is complete: for a moment there may be nothing of it.
_IN_VIEW = """(selector) => { const box = document.querySelector(selector)?.getBoundingClientRect();
    return box !== undefined && box.height > 30 && box.top >= 0 && box.top < innerHeight - 30 && box.left >= 0
        && box.right <= innerWidth; }"""


def test_what_is_dropped_anywhere_is_read_and_an_example_asks(visit: Visit) -> None:
    page = visit.page
    assert page.evaluate(_DROP, "The lamp was lit at dusk. " * 40), "the browser does not open the file itself"
    visit.state("read")
    assert "dropped.txt" in visit.text("#od-card")
    page.get_by_role("button", name="What is this document about?").click()
    visit.answered(1)
    assert "What is this document about?" in visit.text("#od-chat")
    visit.until(lambda: page.input_value("#od-question textarea") == "", "the field is free for the next one")


def test_a_question_waits_for_its_document_and_is_answered_when_that_is_read(visit: Visit) -> None:
    page = visit.page
    page.get_by_role("button", name="What is this document about?").click()
    visit.until(lambda: "Waits for a document" in visit.text("#od-chat"), "it is taken, and says what it waits for")
    page.click("#od-stop-answer")
    visit.until(lambda: page.input_value("#od-question textarea") == "What is this document about?", "taken back")
    assert "Waits" not in visit.text("#od-chat")
    page.press("#od-question textarea", "Enter")
    visit.until(lambda: "Waits for a document" in visit.text("#od-chat"), "it waits again")
    assert page.evaluate(_DROP, "The lamp was lit at dusk. " * 40)
    visit.answered(1)
    assert "Waits" not in visit.text("#od-chat")
    assert "dropped.txt" in visit.text("#od-card")


@pytest.mark.slow
def test_a_document_that_is_dropped_during_a_reading_is_asked_before_that_ends(
    visit: Visit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow_down(monkeypatch, ENGINE, 0.05)
    page = visit.page
    for name, length in (("long", 2000), ("short", 400)):
        (tmp_path / f"{name}.txt").write_text("The lamp was lit at dusk. " * length, encoding="utf-8")
        page.set_input_files("#od-file input[type=file]", tmp_path / f"{name}.txt")
        visit.until(lambda name=name: f"{name}.txt" in visit.text("#od-card"), "it is open")
    visit.ask("When was the lamp lit?")
    visit.answered(1)
    documents = visit.text("#od-documents")
    assert documents.count("being read") == 2, documents
    monkeypatch.undo()
    visit.until(lambda: "being read" not in visit.text("#od-documents"), "both are read to their ends")
    assert "not read" not in visit.text("#od-documents")


@pytest.mark.slow
def test_a_question_is_taken_while_several_files_are_opened(
    visit: Visit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, opening = visit.page, threading.Event()

    def slowly(*args: Any, **options: Any) -> Any:
        assert opening.wait(30)
        return (yield from extract(*args, **options))

    monkeypatch.setattr("ondevice.serving.opening.extract", slowly)
    for name in ("first", "last"):
        (tmp_path / f"{name}.txt").write_text("The lamp was lit at dusk. " * 40, encoding="utf-8")
    page.set_input_files("#od-file input[type=file]", [tmp_path / "first.txt", tmp_path / "last.txt"])
    visit.state("opening")
    visit.ask("When?")
    visit.until(lambda: "Waits until the document is open" in visit.text("#od-chat"), "it waits")
    assert page.input_value("#od-question textarea") == ""
    opening.set()
    visit.until(lambda: "last.txt" in visit.text("#od-card"), "both are open")
    visit.state("read")
    page.get_by_role("radio", name="first.txt").check(force=True)
    visit.answered(1)
    assert "When?" in visit.text("#od-chat")


@pytest.mark.slow
def test_what_would_be_lost_is_asked_about(visit: Visit) -> None:
    page = visit.page
    page.click("#od-sample")
    visit.state("read")
    visit.ask("How many steps?")
    visit.answered(1)
    for selector, word in (
        ("#od-forget", "Close lighthouse.md?"),
        ("#od-read", "Read lighthouse.md again"),
    ):
        page.click(selector)
        assert word in visit.text("#od-confirm dialog")
        page.keyboard.press("Escape")
        visit.until(lambda: not page.is_visible("#od-confirm dialog"), "it goes")
        assert page.locator(selector).evaluate("(button) => button === document.activeElement"), "where one was"
    assert page.locator("#od-chat .thought-group").count() == 1, "nothing was done"
    visit.close_document()
    visit.state("empty")


def last_answer(visit: Visit) -> str:
    """What follows the last question of the conversation."""
    return visit.page.evaluate(
        """() => { const all = [...document.querySelectorAll("#od-chat :is([data-testid=user], [data-testid=bot])")];
        const answer = all[all.findLastIndex((one) => one.dataset.testid === "user") + 1].cloneNode(true);
        answer.querySelectorAll("blockquote").forEach((told) => told.remove());
        return answer.textContent.trim(); }"""
    )


def test_an_answer_goes_on_is_written_anew_and_its_question_is_edited(visit: Visit) -> None:
    page = visit.page
    page.click("#od-sample")
    visit.state("read")
    for number, question in enumerate(("How many steps?", "And who?"), 1):
        visit.ask(question)
        visit.answered(number)
    asked, field = page.locator("#od-chat [data-testid=user]"), page.locator("#od-question textarea")
    field.fill("What I am typing")
    before = last_answer(visit)
    page.click("[href^='#answer-go']")  # the tiny model always writes to its limit
    visit.until(lambda: len(last_answer(visit)) > len(before), "it goes on")
    visit.answered(2)
    visit.state("read")
    assert last_answer(visit).startswith(before), "the same text, and more of it"
    page.click("[href^='#answer-anew']")
    visit.until(lambda: not last_answer(visit).startswith(before), "another one is written")
    visit.until(lambda: page.locator("#od-chat .thought-group").count() == 2, "to its end")
    assert not last_answer(visit).startswith(before)
    assert asked.all_inner_texts() == ["How many steps?", "And who?"], "no question has come of it"
    assert field.input_value() == "What I am typing"
    edit = page.locator("[href^='#answer-edit']").first
    edit.click()
    words = page.locator(".od-rewording textarea")
    assert words.input_value() == "How many steps?"
    assert words.evaluate("(field) => field === document.activeElement"), "to be changed at once"
    assert "dropped" in visit.text(".od-rewording")
    words.press("Escape")
    assert edit.evaluate("(button) => button === document.activeElement"), "or not at all"
    page.keyboard.press("Enter")
    words.fill("How many windows?")
    words.press("Enter")
    visit.until(lambda: asked.all_inner_texts() == ["How many windows?"], "it takes the place of all that came after")
    visit.until(lambda: page.locator(".od-answers details").count() == 1, "and is answered")
    visit.answered(1)
    visit.reload()
    visit.answered(1)
    assert asked.all_inner_texts() == ["How many windows?"]


@pytest.mark.slow
def test_the_account_unfolds_to_rows(visit: Visit) -> None:
    page = visit.page
    page.click("#od-sample")
    visit.state("read")
    visit.ask("How many steps?")
    visit.answered(1)
    page.locator("#od-chat .thought-group .title button").click()
    rows = page.locator("#od-chat .thought-group li")
    visit.until(lambda: rows.count() > 4, "it is unfolded")
    assert all(":" in row and "{" not in row for row in rows.all_inner_texts())
    assert page.locator("#od-chat .thought-group code").count() == 0


def test_the_next_question_is_written_while_an_answer_is(visit: Visit, monkeypatch: pytest.MonkeyPatch) -> None:
    page = visit.page
    page.click("#od-sample")
    visit.state("read")
    slow_down(monkeypatch, ENGINE, 0.2)
    field = page.locator("#od-question textarea")
    field.fill("How many steps?")
    field.press("Enter")
    visit.until(lambda: field.input_value() == "", "the question is being answered")
    field.press_sequentially("And who", delay=20)
    visit.state("answering")
    assert field.input_value() == "And who"
    assert page.evaluate("document.activeElement.tagName") == "TEXTAREA", "and keeps the focus"
    visit.answered(1)
    assert field.input_value() == "And who"
    field.press_sequentially(" was it?")
    field.press("Enter")
    visit.answered(2)


WIDE, NARROW = [(1440, 900), (1024, 768)], [(390, 844)]


@pytest.mark.parametrize(("width", "height"), [WIDE[0], pytest.param(*WIDE[1], marks=pytest.mark.slow)])
def test_answer_evidence_document_and_map_are_in_view_together(program: Any, url: str, width: int, height: int) -> None:
    context = new_context(program, width=width, height=height)
    with visiting(context, url) as visit:
        page = visit.page
        assert page.evaluate(_OVERFLOW) == [0, 0], "empty"
        page.click("#od-sample")
        visit.state("read")
        assert page.evaluate(_OVERFLOW) == [0, 0], "read"
        visit.ask("How many steps?")
        visit.answered(1)
        page.wait_for_selector(".od-source")
        assert page.evaluate(_OVERFLOW) == [0, 0], "the page itself never scrolls"
        for selector in ("#od-chat", ".od-source", ".od-text", ".od-map", "#od-ask"):
            visit.until(lambda selector=selector: page.evaluate(_IN_VIEW, selector), f"{selector} is in view")
        assert not page.is_visible("#od-preset"), "settings are in a drawer"
        assert not page.is_visible("#od-fill"), "and so are charts"
        page.locator(".od-source").first.click()
        page.wait_for_selector(".od-flash")
        assert page.evaluate("scrollY") == 0
        assert page.evaluate(_IN_VIEW, "#od-chat")
        strip = page.locator(".od-map").bounding_box()
        visit.grow_map()
        visit.until(lambda: page.locator("#od-map").bounding_box()["height"] > 0.35 * height, "the map grows")
        assert page.is_visible("[data-replay=play]")
        page.click("[data-map=experts]")
        page.wait_for_selector("#od-map [data-look=head]:enabled")  # its head is widest with them
        for selector in ("#od-chat", ".od-text", ".od-map", "#od-ask"):
            visit.until(lambda selector=selector: page.evaluate(_IN_VIEW, selector), f"{selector} beside the grown map")
        assert page.evaluate(_OVERFLOW) == [0, 0]
        visit.grow_map()
        visit.until(lambda: page.locator(".od-map").bounding_box() == strip, "and goes back")
        assert visit.errors == []
    context.close()


@pytest.mark.parametrize(("width", "height"), NARROW)
def test_a_phone_shows_one_pane_at_a_time(program: Any, url: str, width: int, height: int) -> None:
    context = new_context(program, width=width, height=height)
    with visiting(context, url) as visit:
        page = visit.page
        assert page.evaluate(_OVERFLOW) == [0, 0], "empty"
        page.click("#od-sample")
        visit.state("read")
        assert page.evaluate(_OVERFLOW) == [0, 0], "read"
        visit.ask("How many steps?")
        visit.answered(1)
        for selector in ("#od-chat", "#od-ask"):
            visit.until(lambda selector=selector: page.evaluate(_IN_VIEW, selector), f"{selector} is in view")
        assert not page.is_visible(".od-source"), "the passages are in the account under the answer"
        assert not page.is_visible(".od-text")
        assert not page.is_visible(".od-map")
        page.click("[data-pane-button=map]")
        visit.until(lambda: page.evaluate(_IN_VIEW, ".od-map"), "the map is there")
        assert not page.is_visible("#od-chat")
        page.click("[data-pane-button=chat]")
        page.locator("#od-chat .thought-group .title button").click()
        page.locator("#od-chat a[href^='#passage-']").first.click()
        page.wait_for_selector(".od-flash")
        assert page.evaluate(_IN_VIEW, ".od-text"), "a source leads to the document"
        assert page.get_attribute("[data-pane-button=document]", "aria-current") == "true"
        for selector in ("#od-file", "[data-drawer-button=settings]", "[data-drawer-button=inside]"):
            page.locator(selector).scroll_into_view_if_needed()
            assert page.is_visible(selector), f"{selector} is still to be had"
        assert page.evaluate(_OVERFLOW) == [0, 0]
        assert visit.errors == []
    context.close()


_PASTE = """(text) => {
    const data = new DataTransfer();
    data.setData("text/plain", text);
    const event = new ClipboardEvent("paste", { clipboardData: data, bubbles: true, cancelable: true });
    document.body.dispatchEvent(event); }"""


@pytest.mark.slow
def test_what_is_pasted_is_read(visit: Visit) -> None:
    visit.page.evaluate(_PASTE, "The lamp was lit at dusk. " * 40)
    visit.state("read")
    assert "pasted text.txt" in visit.text("#od-card")


def test_escape_stops_the_answer_and_the_passages_lead_to_the_document(
    visit: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = visit.page
    page.click("#od-sample")
    visit.state("read")
    visit.ask("How many steps?")
    visit.answered(1)
    page.locator("#od-chat .thought-group .title button").click()
    link = page.locator("#od-chat .thought-group a[href^='#passage-']").first
    assert link.inner_text().startswith("[1] section ")
    link.click()
    page.wait_for_selector(".od-flash")
    assert page.evaluate("location.hash") == "", "only the document has moved"
    slow_down(monkeypatch, ENGINE, 0.2)
    visit.ask("And who?")
    page.wait_for_selector("#od-stop-answer")
    visit.until(lambda: page.locator("#od-chat [data-testid=bot]").count() > 3, "a word is there")
    page.keyboard.press("Escape")
    visit.answered(2)
    assert "The answer was stopped." in visit.text("#od-chat")
    expect(page.locator("#od-stop-answer")).not_to_be_visible()


@pytest.mark.slow
def test_a_double_click_blanks_no_button(visit: Visit, monkeypatch: pytest.MonkeyPatch) -> None:
    page = visit.page
    blank = """() => [...document.querySelectorAll("#od-workbench button")].filter((button) =>
        button.checkVisibility() && !button.innerText.trim() && !button.querySelector("svg, img, canvas")
        && !button.ariaLabel).map((button) => button.outerHTML)"""
    page.dblclick("#od-sample")
    visit.state("read")
    assert page.evaluate(blank) == []
    slow_down(monkeypatch, ENGINE, 0.03)
    page.click("#od-read")
    page.dblclick("#od-confirm [data-do]")
    visit.state("reading")
    page.dblclick("#od-pause")
    visit.state("stopped")
    page.keyboard.press("Escape")  # where the second click has met what took its place
    assert page.evaluate(blank) == []
    page.dblclick("#od-resume")
    visit.state("read")
    assert page.evaluate(blank) == []
    page.dblclick("#od-save")
    visit.until(lambda: page.locator("#od-save", has_text="Save again").count() == 1, "it is saved")
    assert page.evaluate(blank) == []
    page.fill("#od-question textarea", "How many steps?")
    page.dblclick("#od-ask")
    visit.answered(1)
    page.fill("#od-question textarea", "And who?")
    page.press("#od-question textarea", "Enter")
    page.press("#od-question textarea", "Enter")
    visit.answered(2)
    assert page.evaluate(blank) == []


@pytest.mark.slow
def test_a_double_click_opens_the_sample_once(visit: Visit) -> None:
    visit.page.dblclick("#od-sample")
    visit.state("read")
    visit.page.wait_for_timeout(1000)
    assert visit.page.locator("#od-documents input").count() <= 1
