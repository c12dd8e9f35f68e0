"""`ondevice bench calibrate`: what it writes and keeps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ondevice.cli import app
from ondevice_bench.results.files import read_result

pytestmark = pytest.mark.usefixtures("one_thread")

POT = ["--capacity", "400", "--keep", "96", "--reserve", "160", "--step", "64"]


def test_a_row_for_every_head_is_written(checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONDEVICE_CACHE", str(tmp_path / "cache"))
    text, written = tmp_path / "lamps.txt", tmp_path / "calibrate.json"
    text.write_text("\n\n".join(f"Keeper {i} lit lamp {i * 37 % 101} at dusk." for i in range(60)))
    command = ["bench", "calibrate", "--tokens", "900", "--model", checkpoint, "--text", text, *POT]
    done = CliRunner().invoke(app, list(map(str, [*command, "--out", written, "--json"])))
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout.splitlines()[-1])
    assert set(document["summary"]) == {"share_of_blocks_read", "output_error_p50", "output_error_p99"}
    assert len(document["rows"]) == 6
    assert document["config"]["tier"]["budget_bytes"] == 0
    assert document["config"]["pot"]["slot_shares"] == "even"
    assert json.loads(json.dumps(read_result(written).to_dict())) == document
    [kept] = (tmp_path / "cache" / "thresholds").iterdir()
    assert [tau for rule in json.loads(kept.read_text())["rules"] for tau in rule["tau"]] == [
        row["p50"] for row in document["rows"]
    ]
