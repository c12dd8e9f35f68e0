"""Answers in a real browser: their sources, files to keep, questions while the document is read, and the charts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("playwright", reason="playwright is not installed")

from ondevice.config import ArtConfig, PotConfig
from ondevice.library.library import Library
from ondevice.ui.launch import serving
from tests.browser.driver import Visit, expect, new_context
from tests.builders.models import plain_config, plain_generation
from tests.builders.screens import slow_down, tiny_engine

POT = PotConfig(capacity=1024, num_kept=256, reserve=256, step_size=256)
ART = ArtConfig(enabled=True, tau=10.0, phi=2.0, patience=1, block_size=64)
ENGINE = tiny_engine(plain_config(pot=POT, art=ART, generation=plain_generation(max_new_tokens=24)))


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    ENGINE.session()  # what ART compiles is compiled before anybody waits for it
    with serving(ENGINE, port=0, reads_at_once=False, library=Library(tmp_path_factory.mktemp("library"))) as address:
        yield address


@pytest.fixture(scope="module")
def profile(program: Any, url: str) -> Any:
    context = new_context(program)
    context.grant_permissions(["clipboard-read", "clipboard-write"], origin=url)
    return context


def answers(visit: Visit) -> int:
    return visit.page.locator("#od-chat .thought-group").count()


def ask(visit: Visit, question: str) -> None:
    before = answers(visit)
    visit.ask(question)
    visit.until(lambda: answers(visit) == before + 1, "answered")
    visit.state("read")


def test_sources_lead_to_the_document_and_answers_can_be_copied_and_saved(visit: Visit) -> None:
    page = visit.page
    expect(page.locator("#od-export-json")).to_be_disabled()
    visit.read_sample()
    expect(page.locator(".od-sources")).not_to_be_visible()
    ask(visit, "Who is the keeper?")
    ask(visit, "And before?")
    assert page.locator(".od-answers details").count() == 2
    assert page.locator(".od-answers details[open] summary").inner_text() == "And before?"
    source = page.locator(".od-answers details[open] .od-source").first
    source.focus()
    page.keyboard.press("Enter")
    page.wait_for_selector(".od-text .od-flash")
    marked = "".join(page.locator(".od-text .od-flash").all_text_contents())
    assert marked.split() == source.locator("q").inner_text().split()
    pins, last = page.locator(".od-pin:not([hidden])"), page.locator(".od-answers details[open] .od-source").last
    assert pins.count() == page.locator(".od-answers details[open] .od-source").count(), "a pin for every source"
    pins.last.press("Enter")
    wanted = last.locator("q").inner_text().split()
    visit.until(
        lambda: "".join(page.locator(".od-text .od-flash").all_text_contents()).split() == wanted,
        "a pin leads there, too",
    )
    page.locator("[href^='#answer-copy']").last.click()
    visit.until(lambda: visit.text(".od-said") == "Copied.", "it says so")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.startswith("## And before?")
    assert "slots" in copied

    with page.expect_download() as download:
        page.click("#od-export-json")
    assert download.value.suggested_filename == "lighthouse-answers.json"
    saved = json.loads(Path(download.value.path()).read_text(encoding="utf-8"))
    assert [turn["question"] for turn in saved["conversation"]] == ["Who is the keeper?", "And before?"]
    assert saved["conversation"][1]["num_remembered"] == 1
    with page.expect_download() as download:
        page.click("#od-export-markdown")
    text = Path(download.value.path()).read_text(encoding="utf-8")
    assert text.startswith("# Questions about lighthouse.md")
    # A page that is loaded again has it all, and saves nothing by itself.
    downloads: list[Any] = []
    page.on("download", lambda file: downloads.append(file))
    visit.reload()
    visit.until(lambda: page.locator(".od-answers details").count() == 2, "the sources are there again")
    page.wait_for_timeout(500)
    assert downloads == []


def test_a_question_while_reading_is_answered_at_once_and_reading_goes_on(
    visit: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow_down(monkeypatch, ENGINE, 0.15)
    page = visit.page
    visit.open_sample()
    page.click("#od-read")
    visit.state("reading")
    visit.until(lambda: not page.is_disabled("#od-ask"), "Ask can be used while the document is read")
    read = page.locator("[role=progressbar]").nth(1)
    visit.until(lambda: int(read.get_attribute("aria-valuenow") or 0) > 0, "there is something to answer from")
    visit.ask("What so far?")
    visit.state("answering")
    visit.until(lambda: page.is_visible("#od-stop-answer"), "the answer can be stopped")
    expect(page.locator("#od-pause")).to_be_visible()
    expect(page.locator("#od-stop")).not_to_be_visible()
    assert "Reading goes on after that" in visit.text("#od-status")
    visit.until(lambda: answers(visit) == 1, "answered")
    assert "From the beginning: " in visit.text("#od-chat") or "answered again" in visit.text("#od-chat")
    visit.state("read")
    now, total = (
        page.locator("[role=progressbar]").nth(1).get_attribute(f"aria-{end}") for end in ("valuenow", "valuemax")
    )
    assert now == total


def test_earlier_questions_are_forgotten_where_that_is_wished(visit: Visit) -> None:
    page = visit.page
    visit.read_sample()
    ask(visit, "Who is the keeper?")
    page.uncheck("#od-remember input")
    ask(visit, "And before?")
    page.locator("#od-chat .thought-group .title button").last.click()
    visit.until(lambda: "slots" in visit.text("#od-chat"), "the account is open")
    assert "remembered" not in visit.text("#od-chat")
    page.check("#od-remember input")
    ask(visit, "And then?")
    page.locator("#od-chat .thought-group .title button").last.click()
    visit.until(lambda: "2 earlier questions remembered" in visit.text("#od-chat"), "it says so")
