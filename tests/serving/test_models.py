"""The list of models: what it says of each, a download beside the work, another model instead of the one in use."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ondevice import words
from ondevice.errors import ConfigError, ModelDownloadError, ModelError
from ondevice.events import TokensRead
from ondevice.library.library import Library
from ondevice.model.loading import catalogue
from ondevice.model.loading.load import LoadedModel
from ondevice.serving import models as module
from ondevice.serving.export import as_json, as_markdown
from ondevice.serving.forecast import ReadingSpeeds
from ondevice.serving.job_events import Opened, Waiting
from ondevice.serving.jobs import Jobs
from ondevice.serving.models import Models
from ondevice.serving.page_file import PageFile
from ondevice.serving.question_queue import Asked
from ondevice.serving.registry import Registry
from ondevice.serving.together import gather
from ondevice.serving.uploads import Upload
from ondevice.serving.visitor import Visitor
from ondevice.serving.workspace import Phase
from ondevice.session.engine import Engine
from ondevice.telemetry.telemetry import Telemetry
from tests.builders.models import tiny_loaded, tokenised
from tests.builders.screens import CONFIG, TEXT

pytestmark = pytest.mark.usefixtures("one_thread")

WHEN = Asked("When?", CONFIG.generation, remembers=True)
SMALL, LARGE = "smollm2-135m", "qwen3-14b"


def loaded_as(name: str, family: str) -> LoadedModel:
    return replace(tiny_loaded(family), source=name, name=name, weight_bytes=1_000_000)


class House:
    """Models over jobs of an engine that has SMALL; all of the catalogue counts as fetched."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        from ondevice.documents import Document, Page

        self.engine = Engine(loaded_as(SMALL, "llama"), replace(CONFIG, model=SMALL))
        self.loads: list[str] = []
        self.refuses: set[str] = set()
        monkeypatch.setattr("ondevice.session.engine.load_model", self._load)
        monkeypatch.setattr(module.stored, "stored", lambda row: None if row.name == LARGE else folder)
        monkeypatch.setattr(
            module,
            "outline_model",
            lambda name, *_, **__: replace(self.engine.loaded, weight_bytes=self.bytes_of(name)),
        )
        self.free = 8_000_000_000
        self.jobs = Jobs(self.engine, Registry(), Library(folder), lambda _: self.free)
        self.ensure: Callable[..., Any] = lambda row, note: None
        monkeypatch.setattr(module.stored, "ensure", lambda row, note: self.ensure(row, note))
        self.models = Models(self.jobs)
        self.visitor = self.jobs.registry.create()
        self.workspace = self.visitor.new("lamp.txt")
        half = len(TEXT) // 2
        pages = (Page(1, TEXT[:half]), Page(2, TEXT[half:]))
        document = Document("lamp.txt", "txt", "part", pages, 2, len(TEXT))
        self.workspace.accept(tokenised(document, self.engine.loaded.tokenizer.encode))

    def bytes_of(self, name: str) -> int:
        return 30_000_000_000 if name == LARGE else 1_000_000

    def _load(self, name: str, **_: Any) -> LoadedModel:
        self.loads.append(name)
        assert self.engine.loaded.model is None, "two models are never in memory"
        if name in self.refuses:
            raise ModelError("It is damaged", where=name)
        return loaded_as(name, "qwen2" if "qwen" in name else "llama")

    def read_and_ask(self) -> None:
        for job in (lambda: self.jobs.read(self.workspace, CONFIG), lambda: self.jobs.ask(self.workspace, WHEN)):
            assert self.workspace.claim()
            deque(job(), maxlen=0)
        assert self.workspace.exchanges

    def use(self, name: object, visitor: Visitor | None = None) -> None:
        self.models.use(visitor or self.visitor, name, lambda *_: None)


def note_speed(speeds: ReadingSpeeds, loaded: LoadedModel, tokens_per_second: float) -> None:
    telemetry = Telemetry()
    for i in (1, 2):
        telemetry.apply(TokensRead(i * 100, 200, 100, i, 100 / tokens_per_second, (1,), 512))
    speeds.note(loaded, CONFIG, telemetry)


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> House:
    return House(tmp_path, monkeypatch)


def test_the_list_says_what_is_here_in_use_and_too_large(house: House) -> None:
    rows = {row["name"]: row for row in house.models.rows()}
    assert set(rows) == set(catalogue.CATALOGUE)
    assert rows[SMALL]["state"] == "current"
    assert rows["qwen3-0.6b"]["state"] == "here"
    assert "Apache-2.0" in rows["qwen3-0.6b"]["facts"]
    assert rows[LARGE]["state"] == "too large"
    assert "30.00 GB" in rows[LARGE]["reason"]
    house.engine.loaded = replace(house.engine.loaded, source="/models/mine", name="mine")
    assert house.models.rows()[0] == {"name": "/models/mine", "title": "mine", "facts": "in use", "state": "current"}


def test_the_list_says_how_fast_each_reads_here_once_one_has(house: House) -> None:
    def facts(name: str) -> str:
        return next(row["facts"] for row in house.models.rows() if row["name"] == name)

    assert "tokens/s" not in facts(SMALL)
    assert "not run by us" not in facts(SMALL)
    assert "not run by us: only its family is tested" in facts("qwen3-0.6b")
    speeds = house.jobs.speeds
    note_speed(speeds, house.engine.loaded, 500.0)
    assert facts(SMALL).endswith("read 500 tokens/s here")
    sizes = [catalogue.CATALOGUE[name] for name in (SMALL, "qwen3-0.6b")]
    ratio = float.__truediv__(*(float(one.num_parameters - one.num_embedding_parameters) for one in sizes))
    assert facts("qwen3-0.6b").endswith(f"roughly {words.rough_rate(500 * ratio)}")
    note_speed(speeds, loaded_as("qwen3-0.6b", "qwen3"), 90.0)
    assert facts("qwen3-0.6b").endswith("read 90.0 tokens/s here")


def test_another_model_reads_the_open_documents_anew(house: House) -> None:
    house.read_and_ask()
    (asked,) = house.workspace.exchanges
    house.workspace.keep_pages(pages := PageFile(Path("lamp.pdf")))
    before = house.engine.decoder
    assert "is read again" in house.models.question(house.visitor)
    house.use("qwen3-0.6b")
    assert house.loads == ["qwen3-0.6b"]
    assert (house.engine.loaded.name, house.engine.config.model) == ("qwen3-0.6b", "qwen3-0.6b")
    assert house.engine.decoder is not before
    assert (house.workspace.phase, house.workspace.session) == (Phase.READY, None)
    (exchange,) = house.workspace.exchanges
    assert (exchange.text, exchange.ids) == (asked.text, ()), "it stays, and does not go on in another model's tokens"
    for file in (as_markdown(house.workspace), as_json(house.workspace)):
        assert "When?" in file, "it can be saved before it is read again"
    assert house.workspace.idle.is_set()
    assert house.workspace.page_file is pages
    house.read_and_ask()
    assert house.models.current is catalogue.CATALOGUE["qwen3-0.6b"]


def test_what_is_opened_while_another_model_is_loaded_waits_for_it(
    house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, jobs = tmp_path / "upload" / "boat.txt", []
    file.parent.mkdir()
    file.write_text("A boat went out.")
    load = house._load

    def opening(name: str, **options: Any) -> LoadedModel:
        workspace = house.visitor.new("boat.txt")
        assert workspace.claim()
        jobs.append(house.jobs.open(workspace, Upload(file)))
        assert any(isinstance(event, Waiting) for event in jobs[0])
        assert workspace.tokens is None
        return load(name, **options)

    monkeypatch.setattr("ondevice.session.engine.load_model", opening)
    house.use("qwen3-0.6b")
    assert list(jobs[0])[-1] == Opened()


def test_what_was_asked_of_several_stays_with_another_model(house: House) -> None:
    together = gather(house.jobs, house.visitor)
    assert together.claim()
    deque(house.jobs.ask(together, WHEN), maxlen=0)
    (asked,) = together.exchanges
    house.use("qwen3-0.6b")
    assert house.visitor.collections == [together]
    (exchange,) = together.exchanges
    assert (exchange.text, exchange.ids) == (asked.text, ())
    assert [one.start_char for one in exchange.sources] == [one.start_char for one in asked.sources]
    assert together.claim()
    deque(house.jobs.ask(together, WHEN), maxlen=0)
    assert len(together.exchanges) == 2


def test_one_that_cannot_be_loaded_leaves_the_one_before(house: House) -> None:
    house.refuses.add("qwen3-0.6b")
    with pytest.raises(ModelError, match="damaged"):
        house.use("qwen3-0.6b")
    assert house.loads == ["qwen3-0.6b", SMALL]
    assert house.engine.loaded.name == SMALL
    house.read_and_ask()


def test_where_not_even_the_one_before_can_be_loaded_the_error_says_so_and_a_third_can_be_used(house: House) -> None:
    house.refuses |= {"qwen3-0.6b", SMALL}
    with pytest.raises(ModelError, match="damaged"):
        house.use("qwen3-0.6b")
    assert house.engine.loaded.name == SMALL, "what it is called can still be asked"
    house.use("qwen3-1.7b")
    house.read_and_ask()


@pytest.mark.parametrize(
    ("name", "what"), [("no-such", "no such model"), (None, "no such model"), (LARGE, "not on this machine")]
)
def test_what_is_not_there_cannot_be_used(house: House, name: object, what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        house.use(name)
    assert house.loads == []


def test_what_is_too_large_is_refused_before_anything_is_dropped(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    house.read_and_ask()
    monkeypatch.setattr(module.stored, "stored", lambda row: Path())
    with pytest.raises(ConfigError, match="too large"):
        house.use(LARGE)
    assert house.workspace.exchanges


def test_nobody_changes_the_model_under_others_or_under_work(house: House) -> None:
    other = house.jobs.registry.create()
    with pytest.raises(ConfigError, match="Another browser"):
        house.use("qwen3-0.6b", other)
    assert house.workspace.claim()
    with pytest.raises(ConfigError, match="at work"):
        house.use("qwen3-0.6b")
    house.workspace.release()
    with house.engine.lane.ticket(), pytest.raises(ConfigError, match="at work"):
        house.use("qwen3-0.6b")
    assert house.workspace.idle.is_set()
    house.use("qwen3-0.6b")


def test_a_download_goes_on_beside_the_work_and_says_how_far(house: House) -> None:
    go, noted = threading.Event(), threading.Event()

    def ensure(row: Any, note: Callable[[str, float | None], None]) -> None:
        note("Joining", 0.4)
        noted.set()
        go.wait(10)

    house.ensure = ensure
    house.models.fetch("qwen3-0.6b")
    assert noted.wait(10)
    fetching = house.models.fetching
    assert fetching is not None
    assert (fetching.row.name, fetching.stage, fetching.fraction) == ("qwen3-0.6b", "Joining", 0.4)
    with pytest.raises(ConfigError, match="is being fetched"):
        house.models.fetch("qwen3-1.7b")
    house.read_and_ask()
    go.set()
    settle(house)
    assert house.models.problem == ""


def test_a_download_is_cancelled_at_its_next_step(house: House) -> None:
    steps = []

    def ensure(row: Any, note: Callable[[str, float | None], None]) -> None:
        for step in range(1000):
            note("Joining", step / 1000)
            steps.append(step)
            time.sleep(0.01)

    house.ensure = ensure
    house.models.fetch("qwen3-0.6b")
    house.models.cancel()
    settle(house)
    assert len(steps) < 900
    assert house.models.problem == "", "it was wanted"


def test_a_download_that_fails_says_why_and_may_be_tried_again(house: House) -> None:
    def ensure(row: Any, note: object) -> None:
        raise ModelDownloadError("The hub cannot be reached", fix="Check the network.")

    house.ensure = ensure
    house.models.fetch("qwen3-0.6b")
    settle(house)
    assert "cannot be reached" in house.models.problem
    house.ensure = lambda row, note: None
    house.models.fetch("qwen3-0.6b")
    settle(house)
    assert house.models.problem == ""


def settle(house: House) -> None:
    end = time.monotonic() + 10
    while house.models.fetching is not None:
        assert time.monotonic() < end
        time.sleep(0.01)
