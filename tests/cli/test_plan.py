"""`ondevice plan`: the parts, the verdict, other machines, and the plan held against a session."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from ondevice.cli import app
from ondevice.planning import machines

pytestmark = pytest.mark.usefixtures("one_thread")

POT = ["--capacity", "512", "--keep", "128", "--reserve", "160"]


@pytest.fixture(scope="module")
def checkpoint(checkpoint: Path) -> str:
    return str(checkpoint)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONDEVICE_CACHE", str(tmp_path))
    monkeypatch.setattr("ondevice.model.loading.hub.cached", lambda repository: None)
    # The process of the tests grows from one to the next.
    monkeypatch.setattr("ondevice.planning.footprint.resident_bytes", lambda: 600 * 10**6)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["plan", *arguments])


def document(*arguments: str) -> dict[str, Any]:
    done = run(*arguments, "--json")
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_a_document_without_end_is_refused() -> None:
    done = run("--tokens", "9" * 400)
    assert done.exit_code == 2
    assert "--tokens" in done.output


def test_the_parts_come_to_the_peak(checkpoint: str) -> None:
    found = document("--model", checkpoint, *POT, "--tokens", "5000")
    parts = found["parts"]
    passing = max(parts["reading"], parts["undo"] + parts["answering"])
    fixed = sum(parts[name] for name in ("program", "weights", "pot", "speculator", "tier"))
    assert found["summary"]["predicted_peak_bytes"] == fixed + passing == found["device_bytes"] + found["main_bytes"]
    assert found["capacity"] == found["config"]["pot"]["capacity"] == 512
    assert found["fits"] is True
    assert found["fix"] == ""
    longer = document("--model", checkpoint, *POT, "--tokens", "50000")["parts"]
    assert longer["pot"] == parts["pot"], "a pot does not grow with the text"
    assert longer["tier"] > parts["tier"]
    shown = run("--model", checkpoint, *POT).stdout
    assert "This fits." in shown
    assert "pot of 512 slots" in shown
    assert "speculator" not in shown
    assert "pot of the small model" not in shown, "what takes nothing is not shown"


@pytest.mark.slow
def test_what_does_not_fit_is_said_with_what_would(checkpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = machines.this_machine
    whole = document("--model", checkpoint, "--capacity", "8192", "--host-tier", "0")
    free = int((whole["summary"]["predicted_peak_bytes"] - whole["parts"]["pot"]) / 0.9)
    monkeypatch.setattr(machines, "this_machine", lambda device: replace(real(device), free_bytes=free))
    found = document("--model", checkpoint, "--capacity", "8192", "--host-tier", "0")
    assert not found["fits"]
    assert found["fix"].startswith("Try --capacity ")
    smaller = found["fix"].removeprefix("Try --capacity ").rstrip(".")
    assert document("--model", checkpoint, "--capacity", smaller, "--host-tier", "0")["summary"]["fits"] == 1.0
    shown = run("--model", checkpoint, "--capacity", "8192").stdout
    assert f"This does not fit. Try --host-tier 0 --capacity {smaller}." in shown
    whole = document("--model", checkpoint, "--policy", "full", "--tokens", "300000")
    assert "--policy" in whole["fix"]
    monkeypatch.setattr(machines, "this_machine", lambda device: replace(real(device), free_bytes=10**6))
    assert "smaller model" in document("--model", checkpoint, *POT)["fix"]


@pytest.mark.slow
def test_another_machine_is_planned_without_having_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ONDEVICE_MODEL")
    board = document("--machine", "orin-nano-8gb")
    assert board["model"] == "qwen3-1.7b"
    assert board["machine"]["is_shared"]
    assert board["fits"]
    desktop = document("--machine", "rtx4090", "--model", "qwen3-14b")
    assert not desktop["fits"]
    assert "ondevice app --model qwen3-8b" in desktop["fix"]
    shown = run("--machine", "rtx4090").stdout
    assert "GPU: " in shown
    assert "Main memory: " in shown
    assert document("--machine", "rtx4090", "--device", "cpu")["model"] == "qwen3-1.7b-gguf"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--machine", "toaster"], "no machine 'toaster'"),
        (["--preset", "laptop"], "Give --machine laptop"),
        (["--machine", "laptop", "--device", "cuda"], "computes on its CPU"),
        (["--model", "somebody/something"], "not on this machine"),
    ],
)
def test_what_cannot_be_planned_is_refused(arguments: list[str], said: str) -> None:
    done = run(*arguments)
    assert done.exit_code == 2
    assert said in " ".join(done.stderr.split())
