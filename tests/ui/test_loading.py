"""The app before its model: it answers, documents and questions wait and say so, and a failure is no end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from ondevice.errors import ModelError
from ondevice.library.library import Library
from ondevice.serving.jobs import Jobs
from ondevice.serving.loading import Loading
from ondevice.serving.registry import Registry
from ondevice.serving.uploads import Uploads
from ondevice.session.engine import Engine
from ondevice.ui import launch as launching
from ondevice.ui.actions import Actions
from ondevice.ui.form import Form
from ondevice.ui.launch import serving
from ondevice.ui.running import Runner
from tests.builders.screens import CONFIG, LateModel, screen_after, tiny_engine, variables_kept

HEADERS = {"x-ondevice": "1"}


class Page:
    """A visitor's page of an app whose model is still to come."""

    def __init__(self, folder: Path, late: LateModel) -> None:
        self.engine = Engine.without_model(CONFIG)
        self.loading = Loading(self.engine, late)
        folder = folder / "documents"
        folder.mkdir(mode=0o700)
        self.jobs = Jobs(self.engine, Registry(), Library(folder.parent / "library"), loading=self.loading)
        self.runner = Runner(self.jobs)
        self.actions, self.form = Actions(self.runner, Uploads(folder)), Form.of(CONFIG)
        self.visitor = self.jobs.registry.create()
        self.id, self.opened = self.visitor.id, dict[str, Any]()
        self.loading.start()

    def open_and_read(self) -> threading.Thread:
        """As the page does with a document that is dropped."""

        def work() -> None:
            self.opened |= screen_after(self.actions.open_sample(self.id))
            self.opened |= screen_after(self.actions.read_opened(self.id, self.form))

        thread = threading.Thread(target=work)
        thread.start()
        return thread


def until(is_true: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not is_true():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[LateModel, httpx.Client]]:
    late, engine = LateModel(), Engine.without_model(CONFIG)
    loading = Loading(engine, late)
    with (
        variables_kept(),
        serving(engine, port=0, library=Library(tmp_path), keeps=False, loading=loading) as url,
        httpx.Client(base_url=url, trust_env=False, headers=HEADERS) as client,
    ):
        yield late, client
        late.go.set()
        assert loading.is_done.wait(30)


def test_http_is_answered_before_the_model_is_loaded(served: tuple[LateModel, httpx.Client]) -> None:
    late, client = served
    assert client.get("/").status_code == client.get("/config").status_code == 200
    assert client.get("/v1/health").json()["status"] == "loading"
    refused = client.get("/v1/documents")
    assert refused.status_code == 503
    assert int(refused.headers["retry-after"]) > 0
    assert refused.json()["error"]["what"].startswith("Loading a tiny one: 40 %, ")
    late.go.set()
    until(lambda: client.get("/v1/documents").status_code == 200)
    assert client.get("/v1/health").json()["model"] == "tiny-llama"


def test_a_document_and_a_question_wait_for_the_model_and_say_so(tmp_path: Path) -> None:
    late = LateModel()
    page = Page(tmp_path, late)
    shown = page.actions.restore(page.id)
    assert shown["header"]["model"] == "No model yet"
    assert shown["header"]["notice"].startswith("Loading a tiny one: 40 %, ")
    assert shown["follow"]["active"]
    opening = page.open_and_read()
    until(lambda: page.visitor.current.waits_for_model)
    assert page.visitor.current.pages is not None, "its text is extracted"
    asked = screen_after(page.actions.ask(page.id, "Where is the lighthouse?", page.form))
    assert asked["chat"][-1]["content"] == "*Waits for the model, which is being loaded.*"
    assert page.actions.follow(page.id)["status"]["text"].endswith("waits for the model, which is being loaded.")
    assert "preset" not in shown
    late.go.set()
    opening.join(60)
    assert page.opened["status"]["phase"] == "read"
    [exchange] = page.visitor.current.exchanges
    assert exchange.question == "Where is the lighthouse?"
    last = page.actions.follow(page.id)
    assert last["header"]["model"].startswith("tiny-llama")
    assert last["header"]["notice"] == "A notice with a `command`."
    assert "KB" in str(last["preset"]["choices"]) or "MB" in str(last["preset"]["choices"])


def test_what_waits_for_the_model_can_be_cancelled(tmp_path: Path) -> None:
    late = LateModel()
    page = Page(tmp_path, late)
    opening = page.open_and_read()
    until(lambda: page.visitor.current.waits_for_model)
    screen_after(page.actions.stop(page.id))
    opening.join(30)
    assert page.visitor.current.document is None
    late.go.set()
    assert page.loading.is_done.wait(30)


def test_a_model_that_fails_to_load_is_told_and_another_one_can_be_taken(tmp_path: Path) -> None:
    late = LateModel(ModelError("The weights are torn", fix="Fetch them again."))
    page = Page(tmp_path, late)
    opening = page.open_and_read()
    until(lambda: page.visitor.current.waits_for_model)
    late.go.set()
    opening.join(30)
    header = page.actions.restore(page.id)["header"]
    assert header["model"] == "No model yet"
    assert "choose another one in the list of models. The weights are torn. Fetch them again." in header["notice"]
    assert page.opened["problem"]["text"] == header["notice"], "the document that waited says why it is not open"
    assert isinstance(page.loading.error, ModelError)
    page.engine.take(tiny_engine())  # as `load_another` does with what it has loaded
    page.open_and_read().join(60)
    assert page.opened["status"]["phase"] == "read"
    assert page.actions.restore(page.id)["header"]["notice"] == "A notice with a `command`."


def test_an_app_that_never_had_a_model_ends_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launching, "_wait_for_the_end", lambda console, loading: loading.is_done.wait(60))
    with variables_kept(), pytest.raises(ModelError, match="no such model"):
        launching.launch(replace(CONFIG, model="/nowhere"), port=0, keeps=False)


def test_an_engine_without_a_model_loads_another_one_and_stays_without_where_that_fails() -> None:
    engine = Engine.without_model(CONFIG)
    with pytest.raises(ModelError, match="No model is in memory"):
        engine.plan()
    for _ in range(2):
        with pytest.raises(ModelError, match="no such model"):
            engine.load_another(replace(CONFIG, model="/nowhere"))
        assert not engine.has_model
