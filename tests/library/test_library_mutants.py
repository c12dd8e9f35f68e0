"""Entries of the library that were damaged: the list always comes, and what cannot be opened says so by name."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from ondevice.config import PotConfig
from ondevice.documents import Document, Page
from ondevice.errors import OndeviceError
from ondevice.library.library import Library
from ondevice.model.loading import hub
from ondevice.serving.exchanges import sources_panel
from ondevice.serving.export import as_json, as_markdown
from ondevice.serving.jobs import Jobs
from ondevice.serving.record import restore_workspace
from ondevice.serving.registry import Registry
from ondevice.serving.workspace import Workspace
from ondevice.session.engine import Engine
from ondevice.ui.chat import conversation
from ondevice.ui.documents_list import saved_list
from ondevice_bench.speed.reliability.damaged_pots import spoil_json
from tests.builders.models import plain_config, plain_generation, tiny_loaded

pytestmark = pytest.mark.usefixtures("one_thread")

POT = PotConfig(capacity=128, num_kept=48, reserve=64, step_size=64)
ENGINE = Engine(tiny_loaded(), plain_config(pot=POT, generation=plain_generation(max_new_tokens=2)))
TEXT = "The lamp was lit at dusk. " * 6
SOURCE = {"text": "The lamp", "page": 1, "start_token": 0, "stop_token": 8, "start_char": 0, "stop_char": 8,
          "share": 0.5, "attention_share": 0.25}  # fmt: skip
RECORD = {
    "exchanges": [{"question": "When?", "text": "At dusk.", "account": "2 tokens", "record": {"turns": [1, {"a": 2}]},
                   "sources": [SOURCE], "note": "", "summary": "All was used", "rows": [["Read", "9 tokens"]]}],
    "stage_seconds": {"reading": 0.5},
    "novelty_tokens": [1, 5, 9],
    "fill": [[64, 64], [156, 100]],
}  # fmt: skip


class Shelf:
    """A library of two entries, one of which is to be damaged."""

    def __init__(self, folder: Path) -> None:
        self.library = Library(folder)
        session = ENGINE.session()
        for _ in session.read(Document("lamp.txt", "txt", "part", (Page(1, TEXT),), 1, len(TEXT))):
            pass
        self.good, bad = (self.library.save(session, RECORD) for _ in range(2))
        self.id = bad.id
        self.entry, self.record = (folder / bad.id / name for name in ("entry.json", "record.json"))
        self.saved = {path: path.read_text() for path in (self.entry, self.record)}
        self.jobs = Jobs(ENGINE, Registry(), self.library)

    def repair(self) -> None:
        for path, text in self.saved.items():
            path.write_text(text)

    def listed(self) -> None:
        """The list as the screen shows it, with the entry that is whole."""
        shown = saved_list(self.jobs.registry.create(), self.jobs)["entries"]
        assert {entry["id"] for entry in shown} == {self.id, self.good.id}
        assert self.library.find(self.good.id) == self.good
        json.dumps(shown, allow_nan=False).encode()

    def opened(self) -> Workspace:
        session, record = self.library.open(ENGINE, self.id)
        workspace = Workspace("id")
        restore_workspace(workspace, session, record)
        shown = [
            conversation(workspace),
            workspace.fill,
            sources_panel(workspace.exchanges, workspace.heading),
            as_markdown(workspace),
        ]
        json.dumps([shown, json.loads(as_json(workspace))], allow_nan=False).encode()
        return workspace


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Shelf:
    return Shelf(tmp_path_factory.mktemp("shelf"))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(3))
def test_no_mutant_breaks_the_list_or_the_opening(part: int, shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    """1,500 in all."""
    monkeypatch.setattr(hub, "_download", lambda *args: pytest.fail("a file has sent for a model"))
    untyped, num_opened = list[str](), 0
    for seed in range(500 * part, 500 * (part + 1)):
        rng = random.Random(seed)
        path = rng.choice((shelf.entry, shelf.entry, shelf.record))
        text = shelf.saved[path]
        if rng.random() < 0.2:
            at = rng.randrange(len(text))
            done, spoilt = (
                f"character {at}",
                text[:at] + rng.choice(("", "x", "9", '"', "[", "\x00", "é")) + text[at + 1 :],
            )
        else:
            data = json.loads(text)
            done = spoil_json(data, rng)
            spoilt = json.dumps(data)
        path.write_text(spoilt)
        try:
            shelf.listed()
            try:
                shelf.opened()
                num_opened += 1
            except OndeviceError:
                pass
        except Exception as error:
            untyped.append(f"{seed} {path.name}: {done}: {error!r}")
        path.write_text(text)
    assert not untyped, "\n".join(untyped)
    assert num_opened > 100


@pytest.mark.parametrize(
    "changes",
    [{"config": {"model": 5}}, {"config": {"pot": None}}, {"saved": "0001-01-01T00:00:00"}, {"pot_bytes": 10**30},
     {"num_tokens": 1.5}, {"problem": "none"}, {"id": "x"}, {"title": "\ud800\x1b[2J"}],
)  # fmt: skip
def test_a_wrong_type_is_a_damaged_entry(changes: dict[str, Any], shelf: Shelf) -> None:
    data = json.loads(shelf.saved[shelf.entry])
    config = data["config"] | changes.get("config", {})
    shelf.entry.write_text(json.dumps(data | changes | {"config": config}))
    shelf.listed()
    assert shelf.library.find(shelf.id).problem or changes.keys() & {"saved", "title"}
    assert shelf.library.find(shelf.id).title.isprintable()
    shelf.repair()


def test_numbers_that_are_none_do_not_keep_a_record_from_opening(shelf: Shelf) -> None:
    text = shelf.saved[shelf.record].replace("156", "NaN").replace("0.25", "1e999").replace("0.5}", "-Infinity}")
    shelf.record.write_text(text.replace("[1, 5, 9]", f"[1, {'9' * 5000}, 9]"))
    workspace = shelf.opened()
    shelf.repair()
    assert workspace.fill[0] == (64, 64)
    assert workspace.exchanges == []
