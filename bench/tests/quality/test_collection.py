"""LongBench's passages as a collection: four ways, rows without a place left out, and a stopped run goes on."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from ondevice.config import EngineConfig, PotConfig
from ondevice.documents import Document
from ondevice.errors import ConfigError
from ondevice.session.engine import Engine
from ondevice_bench.quality.measurement import Setup
from ondevice_bench.quality.qa_summary import F1, HELD
from ondevice_bench.quality.run_collection import MEASUREMENT, NAMES, figures
from ondevice_bench.quality.trials import Trial
from ondevice_bench.results.result import Row, row
from tests.builders.models import plain_config, tiny_loaded

pytestmark = pytest.mark.usefixtures("one_thread")

POT = PotConfig(capacity=1600, num_kept=400, reserve=400, step_size=100)
ENGINE = Engine(tiny_loaded(max_positions=8192), plain_config(pot=POT))
CONTEXT = "Passage 1:\nAnn Lee lit the lamp.\nPassage 2:\nA boat went out.\nPassage 3:\nRain fell on the hill.\n"


def measured(path: Path, answers: list[str], earlier: tuple[Row, ...] = ()) -> list[Trial]:
    def nothing_to_open(other: Path) -> Document:
        raise AssertionError(other)

    line = {
        "input": "Who lit the lamp?", "context": CONTEXT, "answers": answers, "length": 20, "dataset": "hotpotqa",
        "language": "en", "all_classes": None, "_id": "1",
    }  # fmt: skip
    path.write_text(json.dumps(line), encoding="utf-8")
    setup = Setup(ENGINE, lambda *reported: None, nothing_to_open, {}, earlier, None)
    options = SimpleNamespace(data=path, limit=None, new_tokens=8)
    return [item for item in MEASUREMENT.run(setup, options) if isinstance(item, Trial)]


def test_a_row_is_asked_in_four_ways(tmp_path: Path) -> None:
    trials = measured(tmp_path / "hotpotqa.jsonl", ["Ann Lee"])
    assert [one.contender for one in trials] == list(NAMES)
    held = {one.contender: one.scores[HELD] for one in trials}
    assert held == dict.fromkeys(NAMES, 1.0), "all of them have read the sentence"
    assert all(0.0 <= one.scores[F1] <= 1.0 for one in trials)
    assert measured(tmp_path / "hotpotqa.jsonl", ["Ann Lee"], tuple(MEASUREMENT.rows(trials, EngineConfig()))) == []


def test_a_row_whose_answer_stands_nowhere_is_left_out(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no row"):
        measured(tmp_path / "hotpotqa.jsonl", ["yes"])


def test_a_collection_is_held_against_search() -> None:
    rows = [
        row(name, {"task": "hotpotqa", "budget": 800, "trial": f"{number}/0"}, metric, "share", [score])
        for name, score in (("collection", 0.75), ("bm25", 0.25))
        for number in range(8)
        for metric in (F1, HELD)
    ]
    found = figures(rows)
    assert (found["collection"], found["collection_minus_bm25"]) == (0.75, 0.5)
    assert found["collection_minus_bm25_low"] == found["collection_minus_bm25_high"] == 0.5
