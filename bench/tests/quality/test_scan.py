"""Lists over a text: they hold what they say, and all contenders are asked for them, once for each case."""

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
from ondevice_bench.quality.run_scan import MEASUREMENT, summary
from ondevice_bench.quality.scan_tasks import KINDS, count_error, count_of, items_of, list_scores, make_list
from ondevice_bench.quality.trials import Trial
from ondevice_bench.results.result import Row, row
from tests.builders.models import plain_config, tiny_loaded

SENTENCES = [f"Sentence {i} says nothing of note." for i in range(200)]
POT = PotConfig(capacity=800, num_kept=300, reserve=250, step_size=100)


@pytest.mark.parametrize("name", KINDS)
def test_a_document_says_its_things_once_and_is_as_long_as_it_may_be(name: str) -> None:
    sample = make_list(KINDS[name], random.Random(1), SENTENCES, 3000, len)
    assert 2900 <= len(sample.context) <= 3000
    assert 6 <= len(sample.references) <= 10
    assert all(sample.context.count(thing) == 1 for thing in sample.references)
    assert sample == make_list(KINDS[name], random.Random(1), SENTENCES, 3000, len)


@pytest.mark.parametrize(
    ("answer", "recall", "precision"),
    [
        ("- AB-1\n- CD-2", 1.0, 1.0),
        ("- AB-1\n- XX-9", 0.5, 0.5),
        ("The marks are AB-1 and that of the crate by the door, CD-2.", 1.0, 1.0),
        ("- none", 0.0, 0.0),
        ("- AB-1\n- AB-1", 0.5, 1.0),
        ("- AB-1\n- XX-9\n- xx-9", 0.5, 0.5),
    ],
)
def test_lists_are_scored(answer: str, recall: float, precision: float) -> None:
    scores = list_scores(items_of(answer), ["AB-1", "CD-2"])
    assert (scores["recall"], scores["precision"]) == (recall, precision)


@pytest.mark.parametrize(
    ("answer", "number"), [("There are 7 of them.", 7), ("Seven.", 7), ("- Ann Lee\n- Tom Hale", 2), ("", 0)]
)
def test_numbers_are_read(answer: str, number: int) -> None:
    assert count_of(answer) == number
    assert count_error(number, ["x"] * 7) == abs(number - 7) / 7


def measured(earlier: tuple[Row, ...] = (), **options: Any) -> list[Trial]:
    engine = Engine(tiny_loaded(max_positions=8192), plain_config(pot=POT))
    text = " ".join(SENTENCES)
    document = Document("a.txt", "txt", "part", (Page(1, text),), num_pages=1, size_bytes=len(text))
    setup = Setup(engine, lambda *reported: None, lambda _: document, {}, earlier, None)
    given = {"text": Path("a.txt"), "lengths": (1100,), "trials": 2}
    return [item for item in MEASUREMENT.run(setup, SimpleNamespace(**given | options)) if isinstance(item, Trial)]


def test_all_are_asked_and_go_on_where_they_were_stopped() -> None:
    trials = measured()
    cases = [
        (name, task, question)
        for task in ("codes", "names")
        for name in ("scan", "default", "bm25", "full")
        for question in (0, 1)
    ]
    assert [(one.contender, one.task, one.question) for one in trials] == cases
    assert {tuple(one.scores) for one in trials[::2]} == {("recall", "precision")}
    assert {tuple(one.scores) for one in trials[1::2]} == {("count error",)}
    again = measured(tuple(MEASUREMENT.rows(trials[:4], EngineConfig())))
    assert [(one.contender, one.task, one.question) for one in again] == cases[4:]
    assert again[-1].summary == trials[-1].summary


def test_the_summary_has_means_over_all_and_of_each_length() -> None:
    def scored(name: str, length: int, score: float) -> Row:
        return row(name, {"length": length, "task": "codes", "trial": "0/0"}, "recall", "share", [score])

    assert summary([scored("scan", 10, 1.0)]) == {"scan_recall": 1.0}
    assert summary([scored("scan", 10, 1.0), scored("scan", 20, 0.5), scored("default", 20, 0.25)]) == {
        "scan_recall": 0.75, "default_recall": 0.25,
        "scan_recall_10": 1.0, "scan_recall_20": 0.5, "default_recall_20": 0.25,
    }  # fmt: skip


def test_what_cannot_be_measured_is_refused() -> None:
    with pytest.raises(ConfigError, match="too few"):
        measured(lengths=(20,))
    with pytest.raises(ConfigError, match="nothing to measure"):
        MEASUREMENT.config(lambda **_: EngineConfig(pot=POT), SimpleNamespace(lengths=(0,), trials=1, text=Path("a")))
