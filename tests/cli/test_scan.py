"""`ondevice scan` on the command line."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from ondevice.cli import app
from ondevice.scan.asker import Asker
from ondevice.scan.scan import Scan
from tests.builders.models import save_checkpoint, tiny_model

pytestmark = pytest.mark.usefixtures("one_thread")

TEXT = "Ann Lee signed the book. " + "Rain fell all night. " * 20 + "Tom Hale signed, and [red]Ann Lee[/red] left."


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_checkpoint(tiny_model("llama", max_positions=8192), tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "book.txt"
    path.write_text(TEXT)
    return path


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that names whom it sees, one whom it does not, and the rain, which it doubts afterwards."""

    def answer(asker: Asker, question: Sequence[int], most: int) -> tuple[str, bool]:
        about = bytes(token for token in question if token < 256).decode()
        return "\n".join([*(name for name in ("Ann Lee", "Tom Hale", "Rain") if name in about), "Eva Moss"]), True

    def leaning(asker: Asker, question: Sequence[int], one: int, other: int) -> float:
        return -1.0 if b"answer: Rain" in bytes(token for token in question if token < 256) else 1.0

    monkeypatch.setattr(Asker, "answer", answer)
    monkeypatch.setattr(Asker, "leaning", leaning)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["scan", *map(str, arguments)])


def report(result: Result) -> dict[str, Any]:
    return json.loads(result.stdout.splitlines()[-1])


@pytest.mark.usefixtures("names")
def test_findings_are_named_with_place_and_passage(checkpoint: Path, text: Path) -> None:
    result = run(text, "How many people signed?", "--model", checkpoint, "--chunk", 100, "--json")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[:3] == [
        "2 found:",
        "1. Ann Lee (part 1): Ann Lee signed the book.",
        "2. Tom Hale (part 1): Tom Hale signed, and [red]Ann Lee[/red] left.",
    ]
    found = report(result)
    assert found["count"] == 2
    assert found["complete"] is True
    assert [TEXT[at["start"] : at["stop"]] for at in found["findings"][0]["places"]] == ["Ann Lee"] * 2
    assert found["doubted"] == ["Rain"]
    assert found["not_in_document"] == ["Eva Moss"]
    assert found["ledger"]["tokens_read"] == found["ledger"]["tokens_total"] == len(TEXT)
    assert "Not found in the document, and dropped: Eva Moss." in result.stderr
    assert f"Looked at {len(TEXT)} of {len(TEXT)} tokens" in result.stderr
    assert "Scanning" in result.stderr


@pytest.mark.usefixtures("names")
def test_a_stopped_scan_shows_what_it_found(checkpoint: Path, text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    look = Scan._look

    def look_once(scan: Scan, chunk: Any) -> None:
        look(scan, chunk)
        scan.stop()

    monkeypatch.setattr(Scan, "_look", look_once)
    result = run(text, "List all who signed.", "--model", checkpoint, "--chunk", 100, "--json")
    assert result.exit_code == 130
    assert result.stdout.startswith("1 found:\n1. Ann Lee")
    assert report(result)["complete"] is False
    assert report(result)["ledger"]["tokens_unread"] > 0
    assert "were not looked at" in result.stderr


def test_nothing_found_is_said(checkpoint: Path, text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Asker, "answer", lambda *_: ("- none", True))
    result = run(text, "List all boats.", "--model", checkpoint)
    assert result.exit_code == 0, result.output
    assert result.stdout == "0 found.\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-", "Who?"], "A stream cannot be scanned"),
        (["x.pot", "Who?"], "a saved pot holds"),
        (["none.txt", "Who?"], "none.txt"),
        (["{text}", "  "], "The question is empty"),
        (["{text}", "Who?", "--chunk", "5"], "do not suit"),
    ],
)
def test_what_cannot_be_scanned_is_said(checkpoint: Path, text: Path, arguments: list[str], words: str) -> None:
    result = run(*(one.format(text=text) for one in arguments), "--model", checkpoint, "--json")
    assert result.exit_code == 2
    assert words in result.stderr
    assert "what to do" in result.stderr
    assert report(result)["error"]["fix"]
