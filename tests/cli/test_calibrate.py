"""`ondevice calibrate`: what it prints and keeps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ondevice.cli import app

pytestmark = [pytest.mark.usefixtures("one_thread"), pytest.mark.slow]

POT = ["--capacity", "400", "--keep", "96", "--reserve", "160", "--step", "64"]


def test_it_keeps_a_threshold_for_every_head(checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONDEVICE_CACHE", str(tmp_path / "cache"))
    text = tmp_path / "lamps.txt"
    text.write_text("\n\n".join(f"Keeper {i} lit lamp {i * 37 % 101} at dusk." for i in range(60)))
    command = ["calibrate", "--tokens", "900", "--model", checkpoint, "--text", text, *POT, "--json"]
    done = CliRunner().invoke(app, list(map(str, command)))
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout.splitlines()[-1])
    assert set(document["summary"]) == {"share_of_blocks_read", "output_error_p50", "output_error_p99"}
    assert sum(map(len, document["thresholds"])) == 6
    assert document["config"]["tier"]["budget_bytes"] == 0
    assert document["config"]["pot"]["slot_shares"] == "even"
    [kept] = (tmp_path / "cache" / "thresholds").iterdir()
    assert [rule["tau"] for rule in json.loads(kept.read_text())["rules"]] == document["thresholds"]
    assert "of the pot unread" in done.stderr
