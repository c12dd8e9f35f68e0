"""The list of models in the header: fetched, cancelled, used, with the keyboard and on a phone."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("playwright", reason="playwright is not installed")

from ondevice.library.library import Library
from ondevice.model.loading.load import LoadedModel
from ondevice.serving import models as module
from ondevice.session.engine import Engine
from ondevice.ui.launch import serving
from tests.browser.driver import Visit, expect, new_context, visiting
from tests.builders.models import tiny_loaded
from tests.builders.screens import CONFIG

pytestmark = pytest.mark.slow


def loaded_as(name: str, family: str) -> LoadedModel:
    return replace(tiny_loaded(family), source=name, name=name, weight_bytes=1_000_000)


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> set[str]:
    """Names of the models that count as fetched; loading one takes its name, and a tiny model."""
    names = {"smollm2-135m", "qwen3-0.6b"}

    def ensure(row: Any, note: Any, **_: object) -> None:
        for step in range(250):
            note(f"Fetching {row.title}", step / 250)
            time.sleep(0.1)
        names.add(row.name)

    def load(name: str, **_: object) -> LoadedModel:
        time.sleep(0.5)
        return loaded_as(name, "qwen2" if "qwen" in name else "llama")

    monkeypatch.setattr("ondevice.session.engine.load_model", load)
    monkeypatch.setattr(module.stored, "stored", lambda row: tmp_path if row.name in names else None)
    monkeypatch.setattr(module.stored, "ensure", ensure)
    monkeypatch.setattr(module.Models.__init__, "__defaults__", (ensure,))
    return names


@pytest.fixture
def url(here: set[str], tmp_path: Path) -> Iterator[str]:
    engine = Engine(loaded_as("smollm2-135m", "llama"), replace(CONFIG, model="smollm2-135m"))
    with serving(engine, port=0, keeps=False, library=Library(tmp_path / "library")) as address:
        yield address


def row(visit: Visit, title: str) -> Any:
    """That of a model, and not of the same in four or eight bits, which has more in brackets."""
    return visit.page.locator(".od-model-list li", has_text=re.compile(rf"{re.escape(title)}(?! \()"))


def opened(visit: Visit) -> None:
    visit.page.locator(".od-badge-model").press("Enter")
    visit.until(lambda: visit.page.locator(".od-model-list li").count() > 5, "the list is there")


def test_another_model_is_used_and_the_open_document_read_with_it(visit: Visit) -> None:
    page = visit.page
    page.click("#od-sample")
    visit.state("read")
    for number in (1, 2):
        if number == 2:
            page.click(".od-begin")
            visit.until(lambda: page.locator("#od-chat .thought-group").count() == 0, "a new conversation is shown")
        visit.ask(f"Who is keeper {number}?")
        visit.answered(1)
        visit.state("read")
    opened(visit)
    assert "in use" in row(visit, "SmolLM2-135M").inner_text()
    page.get_by_role("button", name="Use Qwen3-0.6B", exact=True).click()
    assert "is read again with it" in row(visit, "Qwen3-0.6B").inner_text()
    page.get_by_role("button", name="Use Qwen3-0.6B now", exact=True).click()
    visit.until(lambda: "qwen3-0.6b on CPU" in visit.text(".od-badge-model"), "it is the one in use")
    visit.until(lambda: "in use" in row(visit, "Qwen3-0.6B").inner_text(), "the list says so")
    page.keyboard.press("Escape")
    expect(page.locator(".od-models")).not_to_be_visible()
    visit.state("read")
    visit.ask("Who is the keeper?")
    visit.answered(2)
    page.click("#od-conversations .od-list > summary")
    page.get_by_role("button", name="Open Who is keeper 1?").click()
    visit.answered(1)
    accounts = page.locator("#od-chat .thought-group")
    visit.until(lambda: "keeper 1?" in visit.text("#od-chat"), "both conversations are there")
    accounts.locator("button").first.click()
    visit.until(lambda: "Model: smollm2-135m" in accounts.inner_text(), "each answer names its model")


def test_a_model_is_fetched_and_a_download_cancelled(visit: Visit) -> None:
    page = visit.page
    opened(visit)
    page.get_by_role("button", name="Download Qwen3-1.7B", exact=True).click()
    visit.until(lambda: "Fetching Qwen3-1.7B" in visit.text(".od-models-state"), "it says how far")
    another = page.get_by_role("button", name="Download Qwen3-4B-Instruct-2507", exact=True)
    visit.until(another.is_disabled, "one at a time")
    page.get_by_role("button", name="Cancel the download").click()
    visit.until(lambda: not page.is_visible(".od-models-state"), "it has ended")
    visit.until(lambda: row(visit, "Qwen3-1.7B").get_attribute("data-state") == "away", "it is not here")
    page.get_by_role("button", name="Download Qwen3-1.7B", exact=True).click()
    visit.until(lambda: row(visit, "Qwen3-1.7B").get_attribute("data-state") == "here", "it is here")


def test_the_list_fits_a_phone(program: Any, url: str) -> None:
    with visiting(new_context(program, width=390, height=844), url) as visit:
        visit.page.click(".od-badge-model")
        visit.until(lambda: visit.page.locator(".od-model-list li").count() > 5, "the list is there")
        box = visit.page.locator(".od-models").bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 390
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= 390
        assert visit.errors == []
