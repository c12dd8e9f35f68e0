"""Questions over a shelf: every document is asked about, by all three, and a stopped run goes on."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ondevice.config import EngineConfig, PotConfig
from ondevice.documents import Document, Page
from ondevice.errors import ConfigError
from ondevice.session.engine import Engine
from ondevice_bench.quality.measurement import Setup
from ondevice_bench.quality.run_ruler import SCORE
from ondevice_bench.quality.run_shelf import MEASUREMENT, summary
from ondevice_bench.quality.trials import Trial
from ondevice_bench.results.result import Row, row
from tests.builders.models import plain_config, tiny_loaded

TEXT = " ".join(f"Sentence {i} says nothing of note. Nor does its neighbour {i}?" for i in range(300))
POT = PotConfig(capacity=800, num_kept=300, reserve=250, step_size=100)


def measured(earlier: tuple[Row, ...] = (), **options: Any) -> list[Trial]:
    engine = Engine(tiny_loaded(max_positions=8192), plain_config(pot=POT))
    document = Document("a.txt", "txt", "part", (Page(1, TEXT),), num_pages=1, size_bytes=len(TEXT))
    setup = Setup(engine, lambda *reported: None, lambda _: document, {}, earlier, None)
    given = {"text": Path("a.txt"), "length": 1000, "documents": 2, "rows": 2}
    return [item for item in MEASUREMENT.run(setup, SimpleNamespace(**given | options)) if isinstance(item, Trial)]


def test_all_are_asked_about_every_document_and_go_on_where_they_were_stopped() -> None:
    trials = measured()
    assert [(one.contender, one.text, one.question) for one in trials] == [
        (name, shelf, question) for shelf in "01" for name in ("alone", "shelf", "bm25") for question in (0, 1)
    ]
    keys = [one.references for one in trials[:2]]
    assert keys[0] != keys[1]
    assert [one.references for one in trials[2:6]] == keys * 2
    assert trials[2].num_read > 1.5 * trials[0].num_read > trials[4].num_read
    again = measured(tuple(MEASUREMENT.rows(trials[:5], EngineConfig())))
    assert [(one.contender, one.text, one.question) for one in again] == [
        (one.contender, one.text, one.question) for one in trials[5:]
    ]


def test_the_shelf_is_held_against_the_right_document_and_against_search() -> None:
    def scored(name: str, question: int, score: float) -> Row:
        return row(name, {"task": "niah", "budget": 800, "trial": f"0/{question}"}, SCORE, "share", [score])

    rows = [scored("alone", 0, 1.0), scored("alone", 1, 1.0), scored("shelf", 0, 1.0), scored("shelf", 1, 0.5)]
    rows += [scored("bm25", 0, 1.0), scored("bm25", 1, 0.0)]
    assert summary(rows) == {
        "alone": 1.0, "shelf": 0.75, "bm25": 0.5, "shelf_share_of_single": 0.75, "shelf_minus_bm25": 0.25,
    }  # fmt: skip


def test_a_text_that_is_too_short_is_refused() -> None:
    with pytest.raises(ConfigError, match="fewer sentences"):
        measured(documents=1000)
