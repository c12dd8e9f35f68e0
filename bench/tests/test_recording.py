"""The recording of a reading: what a recorder notes, what the command writes, and the file that is shipped."""

from __future__ import annotations

import importlib
import json
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient
from typer.testing import CliRunner

from ondevice.cli import app
from ondevice.documents import Document, Page
from ondevice.serving.token_map import State
from ondevice.ui.recording import PATH, caption, recording, recording_route
from ondevice_bench.recording import MAX_FRAMES, Recorder
from tests.builders.screens import TEXT, tiny_engine

pytestmark = pytest.mark.usefixtures("one_thread")

KEYS = {
    "title", "model", "slots", "tokens", "cell_tokens", "seconds", "selections", "frames", "date", "device", "command",
    "commit",
}  # fmt: skip
LONG = TEXT * 3


def check(made: dict[str, Any]) -> None:
    """A recording says nothing that contradicts itself."""
    frames, total, size = made["frames"], made["tokens"], made["cell_tokens"]
    assert 2 <= len(frames) <= MAX_FRAMES + 2
    assert frames[-1]["read"] == total
    assert frames[-1]["seconds"] <= made["seconds"] + 0.1
    for name in ("read", "seconds"):
        values = [frame[name] for frame in frames]
        assert values == sorted(values)
    for frame in frames:
        cells = b64decode(frame["cells"])
        assert len(cells) == 2 * -(-frame["read"] // size), "cells end where reading has got to"
        assert 0 < frame["kept"] <= frame["read"]
        assert 0 < frame["pot_bytes"] < frame["process_bytes"]
        states = {cell & 15 for cell in cells[:-2:2]}  # the last may be read in part
        assert states <= {int(state) for state in State} - {int(State.UNREAD)}
    assert len({frame["pot_bytes"] for frame in frames}) == 1, "the pot is of a fixed size"


def test_a_recorder_notes_what_the_map_shows() -> None:
    session = tiny_engine().session()
    recorder = None
    for event in session.read(Document("lamp.txt", "txt", "part", (Page(1, LONG),), 1, len(LONG))):
        if session.context.is_open:
            recorder = recorder or Recorder(session)
            recorder.apply(event)
    assert recorder is not None
    made = recorder.to_dict("The lamp")
    check(made)
    assert (made["title"], made["tokens"]) == ("The lamp", len(LONG))
    assert made["selections"] == session.context.num_cycles > 0
    assert made["frames"][-1]["kept"] == session.context.ledger.tokens_kept < len(LONG)


def test_the_command_writes_a_recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = importlib.import_module("ondevice_bench.cli.record")
    monkeypatch.setattr(command, "load_engine", lambda config, display: tiny_engine())
    book, out = tmp_path / "lamp.txt", tmp_path / "recording.json"
    book.write_text(LONG)
    done = CliRunner().invoke(app, ["record", str(book), "--out", str(out)])
    assert done.exit_code == 0, done.output
    made = json.loads(out.read_text())
    check(made)
    assert set(made) == KEYS
    assert made["title"] == "lamp.txt"
    assert LONG[:20] not in out.read_text()


def test_the_recording_that_is_shipped() -> None:
    made = json.loads(recording())
    assert len(recording()) < 1_000_000
    assert set(made) == KEYS
    check(made)
    assert made["tokens"] > 100_000, "a novel"
    assert made["command"].startswith("ondevice record ")
    shown = caption()["caption"]
    for part in (made["title"], made["model"], made["date"], f"{made['tokens']:,} tokens", f"{made['slots']:,} slots"):
        assert part in shown


def test_the_page_can_fetch_it() -> None:
    with TestClient(Starlette(routes=[recording_route()])) as client:
        response = client.get(PATH)
    assert response.content == recording()
    assert response.headers["content-type"] == "application/json"
