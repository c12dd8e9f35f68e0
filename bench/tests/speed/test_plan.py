"""`ondevice bench plan`: the plan held against sessions, pot by pot."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ondevice.cli import app
from ondevice.config import EngineConfig
from ondevice_bench.speed import plan
from ondevice_bench.speed.trial import Taken


def test_the_bench_takes_pots_in_turn(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = list[int]()

    def taken(config: EngineConfig, num_tokens: int) -> Taken:
        sizes.append(size := config.pot.capacity)
        assert num_tokens == 2.5 * size
        return Taken(1000, 100.0, 10.0, 1000, {600: 1050, 800: 900}[size])

    def speeds(_: object, config: EngineConfig, num_tokens: int) -> tuple[float, float]:
        return {600: (110.0, 8.0), 800: (95.0, 12.0)}[config.pot.capacity]

    monkeypatch.setattr(plan, "take", taken)
    monkeypatch.setattr(plan, "in_its_own_process", speeds)
    options = ["--model", str(checkpoint), "--capacities", "600,800", "--json"]
    done = CliRunner().invoke(app, ["bench", "plan", *options])
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout.splitlines()[-1])
    assert sizes == [600, 800]
    assert result["summary"] == {
        "predicted_over_measured_peak": 0.9,
        "predicted_over_measured_reading": 1.1,
        "predicted_over_measured_decoding": 0.8,
        "predicted_over_measured_peak_600": 1.05,
        "predicted_over_measured_reading_600": 1.1,
        "predicted_over_measured_decoding_600": 0.8,
        "predicted_over_measured_peak_800": 0.9,
        "predicted_over_measured_reading_800": 0.95,
        "predicted_over_measured_decoding_800": 1.2,
    }
    assert len(result["rows"]) == 18
