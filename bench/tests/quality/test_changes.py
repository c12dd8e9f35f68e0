"""Versions of a text differ in what they say they do, and all contenders are asked for it."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ondevice.config import EngineConfig, PotConfig
from ondevice.documents import Document, Page
from ondevice.errors import ConfigError
from ondevice.session.engine import Engine
from ondevice_bench.quality.measurement import Setup
from ondevice_bench.quality.run_changes import MEASUREMENT, make_versions, scores_of, summary
from ondevice_bench.quality.trials import Trial
from ondevice_bench.results.result import Row, row
from tests.builders.models import plain_config, tiny_loaded

SENTENCES = [f"Sentence {i} says nothing of note." for i in range(200)]
POT = PotConfig(capacity=4000, num_kept=300, reserve=250, step_size=100)


def test_versions_differ_in_the_edited_things_alone() -> None:
    versions = make_versions(random.Random(1), SENTENCES, 3000, len)
    assert 2000 < len(versions.first) < 3600
    for thing in versions.edited:
        assert (versions.first.count(thing), versions.second.count(thing)) in ((1, 0), (0, 1))
    for thing in versions.same:
        assert (versions.first.count(thing), versions.second.count(thing)) == (1, 1)
    assert versions == make_versions(random.Random(1), SENTENCES, 3000, len)


def test_an_answer_is_scored_by_the_things_that_it_names() -> None:
    versions = make_versions(random.Random(1), SENTENCES, 3000, len)
    half = f"{versions.edited[0]}, {versions.edited[1]}, {versions.edited[2]} and {versions.same[0]}"
    assert scores_of(half, versions) == {"recall": 0.5, "precision": 0.75}
    assert scores_of("Nothing.", versions) == {"recall": 0.0, "precision": 0.0}


def measured(earlier: tuple[Row, ...] = (), **options: Any) -> list[Trial]:
    engine = Engine(tiny_loaded(max_positions=8192), plain_config(pot=POT))
    text = " ".join(SENTENCES)
    document = Document("a.txt", "txt", "part", (Page(1, text),), num_pages=1, size_bytes=len(text))
    setup = Setup(engine, lambda *reported: None, lambda _: document, {}, earlier, None)
    given = {"text": Path("a.txt"), "lengths": (1500,), "trials": 2}
    return [item for item in MEASUREMENT.run(setup, SimpleNamespace(**given | options)) if isinstance(item, Trial)]


def test_all_are_asked_and_the_comparison_finds_all() -> None:
    trials = measured()
    assert [one.contender for one in trials] == ["bm25", "full", "comparison"] * 2
    assert [one.scores for one in trials[2::3]] == [{"recall": 1.0, "precision": 1.0}] * 2
    again = measured(tuple(MEASUREMENT.rows(trials[:4], EngineConfig())))
    assert [one.contender for one in again] == ["full", "comparison"]
    assert again[-1].summary == trials[-1].summary


def test_the_summary_has_means_and_what_the_comparison_has_beyond_the_others() -> None:
    def scored(name: str, score: float) -> list[Row]:
        return [row(name, {"trial": f"{n}/0"}, "recall", "share", [score]) for n in range(6)]

    assert summary([*scored("comparison", 1.0), *scored("bm25", 0.25)]) == {
        "comparison_recall": 1.0, "bm25_recall": 0.25,
        "recall_minus_bm25": 0.75, "recall_minus_bm25_low": 0.75, "recall_minus_bm25_high": 0.75,
    }  # fmt: skip


def test_what_cannot_be_measured_is_refused() -> None:
    with pytest.raises(ConfigError, match="nothing to measure"):
        MEASUREMENT.config(lambda **_: EngineConfig(pot=POT), SimpleNamespace(lengths=(20,), trials=1, text=Path("a")))
