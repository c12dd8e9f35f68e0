"""The app is stopped and started again: what was open comes back in the same browser, until it is closed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("playwright", reason="playwright is not installed")
pytest.importorskip("axe_playwright_python", reason="axe-playwright-python is not installed")

from ondevice.files import data_dir
from ondevice.library.library import Library
from ondevice.ui.launch import serving
from tests.browser.axe import serious_violations
from tests.browser.driver import Visit, expect, new_context, visiting
from tests.builders.screens import slow_down, tiny_engine, variables_kept

ENGINE = tiny_engine()


class Served:
    """The app, which can be started again at the same address, with one page of one browser."""

    def __init__(self, profile: Any, folder: Path) -> None:
        self._folder, self._running, self._page = folder, ExitStack(), ExitStack()
        self.address = self._start(0)
        self.visit: Visit = self._page.enter_context(visiting(profile, self.address))

    def _start(self, port: int) -> str:
        self._running.enter_context(variables_kept())
        return self._running.enter_context(serving(ENGINE, port=port, library=Library(self._folder)))

    def restart(self, *, comes_back: bool = True) -> None:
        page = self.visit.page
        if comes_back:
            page.goto("about:blank")
        self._running.close()
        self._start(int(self.address.rpartition(":")[2]))
        if comes_back:
            self.visit.errors.clear()  # what Gradio's client says of streams that were open
            page.goto(self.address)
            page.wait_for_selector("body[data-state]:not([data-state=loading])")

    def close(self) -> None:
        self._page.close()
        self._running.close()


@pytest.fixture
def served(profile: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setenv("ONDEVICE_DATA", str(tmp_path))  # where no other test keeps anything
    app = Served(profile, tmp_path / "library")
    yield app
    assert app.visit.foreign == []
    assert app.visit.errors == []
    app.close()


def num_kept() -> int:
    folder = data_dir() / "open"
    return sum(path.suffix == ".json" for path in folder.iterdir()) if folder.exists() else 0


def answers(visit: Visit) -> int:
    return visit.page.locator("#od-chat .thought-group").count()


def test_a_document_comes_back_with_its_conversation_and_goes_when_it_is_closed(served: Served) -> None:
    visit, page = served.visit, served.visit.page
    page.click("#od-sample")
    visit.state("read")
    visit.ask("Who is the keeper?")
    visit.until(lambda: answers(visit) == 1, "answered")
    visit.state("read")
    before = visit.text("#od-chat"), visit.text("#od-card")
    served.restart()
    visit.state("read")
    visit.until(lambda: answers(visit) == 1, "the conversation is there")
    assert (visit.text("#od-chat"), visit.text("#od-card")) == before
    expect(page.locator("#od-problem .od-problem")).to_be_hidden()
    visit.ask("And before?")
    visit.until(lambda: answers(visit) == 2, "it answers on")
    visit.state("read")
    visit.close_document()
    visit.state("empty")
    assert num_kept() == 0
    served.restart()
    visit.state("empty")


def test_a_reading_that_the_end_of_the_app_broke_off_is_resumed(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    visit, page = served.visit, served.visit.page
    with monkeypatch.context() as slowly:
        slow_down(slowly, ENGINE, 0.1)
        page.click("#od-sample")
        visit.state("reading")
        visit.until(lambda: "0 of" not in visit.text("#od-progress"), "some of it is read")
        served.restart()
        visit.state("stopped")
    said = re.search(r"Paused after ([\d,]+) of ([\d,]+) tokens", visit.text("#od-status"))
    assert said is not None
    assert said[1] != said[2]
    page.click("#od-resume")
    visit.state("read")
    visit.close_document()
    visit.state("empty")


def test_several_conversations_about_a_document_are_kept_and_found(served: Served) -> None:
    visit, page = served.visit, served.visit.page
    listed, head = page.locator("#od-conversations .od-entry"), page.locator("#od-conversations .od-list > summary")
    begin = page.get_by_role("button", name="New conversation")

    def asked() -> list[str]:
        return page.locator("#od-chat .message.user").all_inner_texts()

    page.click("#od-sample")
    visit.state("read")
    expect(begin).to_be_hidden()
    questions = [f"Who is keeper number {number}?" for number in range(1, 6)]
    for question in questions:
        if question != questions[0]:
            begin.click()
            visit.until(lambda: not asked(), "it is empty")
            expect(page.locator("#od-question textarea")).to_be_focused()
        visit.ask(question)
        visit.answered(1)
        visit.state("read")
    head.click()
    visit.until(lambda: listed.count() == 5, "all are listed")
    assert questions[4] in listed.first.inner_text(), "the newest first"
    assert serious_violations(visit) == []
    page.get_by_label("Find a conversation").fill("number 2 KEEPER")
    visit.until(lambda: listed.filter(visible=True).count() == 1, "it is found")
    page.get_by_role("button", name=f"Open {questions[1]}").click()
    visit.until(lambda: asked() == [questions[1]], "it is back")
    expect(listed.first).to_be_hidden()
    visit.ask("And before?")
    visit.answered(2)
    visit.state("read")

    head.click()
    visit.until(lambda: listed.filter(visible=True).count() == 5, "all are listed again")
    listed.nth(3).locator("summary").click()
    listed.nth(3).get_by_label("Name").fill("<b>Keepers</b>")
    page.keyboard.press("Enter")
    visit.until(lambda: "<b>Keepers</b>" in head.inner_text(), "it has the new name")
    listed.nth(0).locator("summary").click()
    listed.nth(0).get_by_role("button", name="Delete").click()
    assert questions[4] in visit.text("#od-confirm dialog")
    visit.agree()
    visit.until(lambda: listed.count() == 4, "it has gone")
    for size in ((390, 844), (640, 430)):  # a phone; a page at twice its size
        page.set_viewport_size({"width": size[0], "height": size[1]})
        box = page.locator("#od-conversations .od-list > div").bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert (box["x"] + box["width"], box["y"] + box["height"]) <= size
        assert serious_violations(visit) == []
    page.set_viewport_size({"width": 1280, "height": 860})

    if not listed.first.is_visible():
        head.click()
    page.get_by_role("button", name=f"Open {questions[2]}").click()
    visit.until(lambda: asked() == [questions[2]], "another one is shown")

    served.restart()
    visit.state("read")
    visit.until(lambda: asked() == [questions[2]], "the one that was shown is shown")
    head.click()
    texts = [one.splitlines() for one in listed.all_inner_texts()]
    assert [text[0] for text in texts] == [questions[3], questions[2], "<b>Keepers</b>", questions[0]]
    assert [text[1] for text in texts] == ["1 question", "1 question", "2 questions", "1 question"]
    listed.last.locator(".od-open").click()
    visit.until(lambda: asked() == [questions[0]], "an earlier one is back as well")
    visit.close_document()
    visit.state("empty")
    expect(begin).to_be_hidden()
    assert num_kept() == 0


@pytest.mark.slow
def test_a_page_that_stayed_open_says_what_to_do(served: Served) -> None:
    visit, page = served.visit, served.visit.page
    page.click("#od-sample")
    visit.state("read")
    served.restart(comes_back=False)
    visit.ask("Who is the keeper?")
    visit.until(lambda: "load the page again" in visit.text("#od-problem"), "it says so")
    visit.errors.clear()
    visit.reload()
    visit.state("read")
    visit.close_document()
    visit.state("empty")


@pytest.mark.slow
def test_everything_is_forgotten_at_once_after_a_second_word(served: Served) -> None:
    visit, page = served.visit, served.visit.page
    page.click("#od-sample")
    visit.state("read")
    page.click(".od-library > summary")
    visit.until(lambda: "1 open document is kept" in visit.text("#od-library"), "it is told")
    forget = page.get_by_role("button", name="Forget everything")
    forget.click()
    page.keyboard.press("Enter")  # on Keep, which has the focus
    assert num_kept() == 1
    forget.click()
    page.get_by_role("button", name="Forget for good").click()
    visit.state("empty")
    visit.until(lambda: not page.is_visible(".od-library"), "nothing is kept")
    assert num_kept() == 0


@pytest.mark.slow
def test_what_another_browser_had_open_is_not_forgotten_after_a_restart(served: Served, program: Any) -> None:
    visit, page = served.visit, served.visit.page
    with visiting(new_context(program), served.address) as other:
        for one in (visit, other):
            one.page.click("#od-sample")
            one.state("read")
        other.page.goto("about:blank")
        served.restart()
        visit.state("read")
        page.click(".od-library > summary")
        visit.until(lambda: "1 open document is kept" in visit.text("#od-library"), "its own alone is told")
        page.get_by_role("button", name="Forget everything").click()
        page.get_by_role("button", name="Forget for good").click()
        visit.state("empty")
        visit.until(lambda: not page.is_visible(".od-library"), "nothing of its own is kept")
        assert num_kept() == 1
        other.errors.clear()
        other.page.goto(served.address)
        other.state("read")
        assert (other.foreign, other.errors) == ([], [])
