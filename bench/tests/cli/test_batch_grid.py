"""`ondevice eval NAME --address`: the same rows and figures as without, and a stopped grid that goes on."""

from __future__ import annotations

import importlib
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from ondevice.cli import app
from ondevice_bench.cli.batch_grid import cells_of
from ondevice_bench.quality.registry import EVALUATIONS
from tests.builders.models import save_checkpoint, tiny_model

GRIDS = {entry.name: entry for entry in EVALUATIONS if entry.grid}


def test_each_value_is_a_cell() -> None:
    options = SimpleNamespace(lengths=(300, 600), depths=(0.5,))
    assert [cell.lengths for cell in cells_of(GRIDS["passkey"], options)] == [(300,), (600,)]
    cells = cells_of(GRIDS["answers"], SimpleNamespace(contenders="pot,bm25", limit=3))
    assert [(cell.contenders, cell.limit) for cell in cells] == [("pot", 3), ("bm25", 3)]


def test_a_grid_is_spanned_by_an_option_that_is_there_and_its_rows_give_the_summary() -> None:
    for entry in GRIDS.values():
        assert entry.grid in {option.name for option in entry.options}
        assert entry.resumes, "rows of a stopped run are kept"
        measurement = importlib.import_module(entry.module).MEASUREMENT
        assert measurement.figures is not None


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed here")
def test_a_grid_gives_what_one_engine_gives_and_goes_on(tmp_path: Path) -> None:
    model, out = save_checkpoint(tiny_model("llama"), tmp_path / "tiny"), tmp_path / "grid.json"
    command = [
        "eval",
        "passkey",
        "--lengths",
        "1200,1500",
        "--depths",
        "0.5",
        "--model",
        str(model),
        "--capacity",
        "1024",
    ]
    command += ["--keep", "512", "--reserve", "300", "--device", "cpu"]
    expected = CliRunner().invoke(app, [*command, "--json"])
    assert expected.exit_code == 0, expected.output

    def in_grid() -> dict[str, Any]:
        more = ["--address", "local", "--cpus-per-engine", "1", "--out", str(out), "--json"]
        program = [sys.executable, "-c", "from ondevice.cli import app; app()"]
        done = subprocess.run([*program, *command, *more], capture_output=True, text=True, timeout=500)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    whole = in_grid()
    alone = json.loads(expected.stdout.splitlines()[-1])
    assert whole["summary"] == alone["summary"]
    assert [(row["case"], row["metric"]) for row in whole["rows"]] == [(r["case"], r["metric"]) for r in alone["rows"]]
    assert [row["p50"] for row in whole["rows"][::2]] == [row["p50"] for row in alone["rows"][::2]]
    kept = {**json.loads(out.read_text()), "complete": False}
    kept["rows"], kept["rows"][0]["n"] = kept["rows"][:2], 77  # known again by this
    out.write_text(json.dumps(kept))
    assert [row["n"] for row in in_grid()["rows"]] == [77, 1, 1, 1]
