"""A start in the browser: the first page, the app before its model, and one that cannot be loaded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("playwright", reason="playwright is not installed")

from ondevice.errors import ModelError
from ondevice.library.library import Library
from ondevice.serving import models as module
from ondevice.serving.first_page import FirstPage
from ondevice.serving.loading import Loading
from ondevice.session.engine import Engine
from ondevice.ui.launch import serving
from tests.browser.driver import new_context, visiting
from tests.builders.models import tiny_loaded
from tests.builders.screens import CONFIG, LateModel

pytestmark = pytest.mark.slow


def test_the_first_page_becomes_the_app_and_the_app_waits_for_its_model(program: Any, tmp_path: Path) -> None:
    late, engine = LateModel(), Engine.without_model(CONFIG)
    loading, library = Loading(engine, late), Library(tmp_path)
    with FirstPage("127.0.0.1", 0) as first:
        page = new_context(program).new_page()
        page.goto(f"http://127.0.0.1:{first.port}")
        assert "Starting" in page.inner_text("[role=status]")
        page.get_by_text("s so far").wait_for()
        options: dict[str, Any] = {"keeps": False, "loading": loading, "handover": first.close}
        with serving(engine, port=first.port, library=library, **options) as url:
            page.wait_for_selector("body[data-state=empty]")
            page.close()
            with visiting(new_context(program), url) as visit:
                assert visit.text(".od-badge-model") == "No model yet"
                line = visit.text(".od-notice")
                assert line.startswith("Loading a tiny one: 40 %, ")
                visit.until(lambda: visit.text(".od-notice") != line, "its seconds go on")
                visit.page.click("#od-sample")
                visit.until(lambda: "waits for the model" in visit.text(".od-status"), "the document waits")
                visit.ask("Where does the lighthouse stand?")
                visit.until(lambda: "Waits for the model" in visit.text("#od-chat"), "the question waits")
                late.go.set()
                visit.answered(1)
                visit.state("read")
                visit.until(lambda: "tiny-llama on CPU" in visit.text(".od-badge-model"), "the model is named")
                assert visit.text(".od-notice") == "A notice with a command."
                assert "5.1 MB" in visit.page.text_content("#od-preset")  # what the pot of each size takes
                assert (visit.foreign, visit.errors) == ([], [])
            assert loading.is_done.is_set()


def test_another_model_is_chosen_where_the_first_one_fails(
    program: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late, engine = LateModel(ModelError("The weights are torn", fix="Fetch them again.")), Engine.without_model(CONFIG)
    late.go.set()
    small = replace(tiny_loaded(), source="qwen3-0.6b", name="qwen3-0.6b")
    monkeypatch.setattr(module.stored, "stored", lambda row: tmp_path if row.name == small.name else None)
    monkeypatch.setattr(Engine, "load", lambda config, report: Engine(small, config))
    options: dict[str, Any] = {"keeps": False, "loading": Loading(engine, late)}
    with (
        serving(engine, port=0, library=Library(tmp_path / "library"), **options) as url,
        visiting(new_context(program), url) as visit,
    ):
        visit.until(lambda: "The weights are torn. Fetch them again." in visit.text(".od-notice"), "it says why")
        visit.page.click(".od-badge-model")
        visit.page.get_by_role("button", name="Use Qwen3-0.6B", exact=True).click()
        visit.until(lambda: "qwen3-0.6b on CPU" in visit.text(".od-badge-model"), "the other one is in use")
        visit.page.keyboard.press("Escape")
        visit.page.click("#od-sample")
        visit.state("read")
        assert not visit.page.is_visible(".od-notice")
        assert (visit.foreign, visit.errors) == ([], [])
