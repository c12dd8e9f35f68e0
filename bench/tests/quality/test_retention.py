"""Policies by compression: every contender with every size, recall and needles, resumed where it was stopped."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from ondevice.config import EngineConfig, PotConfig
from ondevice.documents import Document, Page
from ondevice.errors import ConfigError
from ondevice.session.engine import Engine
from ondevice_bench.quality.measurement import Setup
from ondevice_bench.quality.run_retention import LOSS, MEASUREMENT, SECONDS, Recalled, retention_summary
from ondevice_bench.quality.run_ruler import SCORE
from ondevice_bench.quality.trials import Trial
from ondevice_bench.results.comparison import lines_of
from ondevice_bench.results.reading import IN_BYTES, IN_TOKENS, RECALL
from ondevice_bench.results.result import Row, new_result, row
from tests.builders.models import plain_config, tiny_loaded

TEXT = " ".join(f"Sentence {i} says nothing of note. Nor does its neighbour {i}?" for i in range(300))
POT = PotConfig(capacity=1000, num_kept=400, reserve=300, step_size=100)
OPTIONS: dict[str, Any] = {
    "text": Path("a.txt"), "length": 2000, "ratios": (2, 3), "policies": "infinipot,infinipot-published", "rows": 1,
    "spans": 3,
}  # fmt: skip


def measured(earlier: tuple[Row, ...] = (), **options: Any) -> list[Trial | Recalled]:
    engine = Engine(tiny_loaded(max_positions=8192), plain_config(pot=POT))
    document = Document("a.txt", "txt", "part", (Page(1, TEXT),), num_pages=1, size_bytes=len(TEXT))
    setup = Setup(engine, lambda *reported: None, lambda _: document, {}, earlier, None)
    items = MEASUREMENT.run(setup, SimpleNamespace(**OPTIONS | options))
    return [item for item in items if isinstance(item, Trial | Recalled)]


@pytest.mark.parametrize("name", ["pot-int8", "pot-k8v4", "pot-int4"])
def test_codes_have_the_bytes_of_the_pot_and_more_slots(name: str) -> None:
    plain, coded = (
        next(item for item in measured(policies=one, ratios=(5,), rows=0) if isinstance(item, Recalled))
        for one in ("pot", name)
    )
    assert plain.num_slots == 400
    assert coded.num_slots > 1.5 * plain.num_slots  # of small heads, where the counts beside them weigh much
    assert 0.99 * plain.num_bytes < coded.num_bytes <= plain.num_bytes


def test_every_contender_has_every_size_and_goes_on_where_it_was_stopped() -> None:
    items = measured()
    recalls = [(item.contender, item.budget) for item in items if isinstance(item, Recalled)]
    assert recalls == [(name, budget) for budget in (1000, 666) for name in ("infinipot", "infinipot-published")]
    answered = {(item.contender, item.budget) for item in items if isinstance(item, Trial)}
    assert answered == {
        *((name, budget) for budget in (1000, 666) for name in ("infinipot", "infinipot-published")),
        ("full", 1000),
    }
    assert sum(isinstance(item, Trial) for item in items) == 9 * 5
    summary = MEASUREMENT.summary(items)
    assert {"recall_pot_alone", "recall_2to1_infinipot-published", "reading_speed_vs_infinipot"} <= set(summary)
    rows = MEASUREMENT.rows(items[:10], EngineConfig())
    again = measured(tuple(rows))
    assert len(again) == len(items) - 10


def test_files_have_every_span_and_both_sizes_so_that_recall_has_an_interval() -> None:
    items = measured(rows=0, spans=6)
    rows = MEASUREMENT.rows(items, EngineConfig())
    case = {"task": "recall", "budget": 1000, "trial": "2000 tokens"}
    sizes = {one.metric: one.p50 for one in rows if one.contender == "infinipot" and one.case == case}
    item = next(item for item in items if isinstance(item, Recalled))
    model = tiny_loaded().model.config
    per_token = 2 * 2 * model.num_hidden_layers * model.num_key_value_heads * model.head_dim  # two bytes a number
    assert sizes[IN_TOKENS] == 2.0
    assert sizes[IN_BYTES] == 2000 * per_token / item.num_bytes
    asked = [(one.contender, one.case["budget"]) for one in rows if one.metric == LOSS]
    names = ("infinipot", "full", "none", "infinipot-published")
    assert asked == [(name, budget) for budget in (1000, 666) for name in names for _ in range(6)]
    made = replace(new_result("ondevice eval retention", EngineConfig(), torch.device("cpu")), rows=tuple(rows))
    recall = next(line for line in lines_of(made) if line.metric == RECALL)
    assert recall.figure.value == pytest.approx(sizes[RECALL])
    assert recall.figure.n == 6
    assert {one.name.partition(" ")[0] for one in recall.rivals} == {"full", "none", "infinipot-published"}


def test_shares_are_of_what_the_full_cache_gets() -> None:
    def scored(name: str, budget: int, score: float, trial: str = "0/0") -> Row:
        return row(name, {"task": "vt", "budget": budget, "trial": trial}, SCORE, "share", [score])

    def recalled(name: str, budget: int, share: float, seconds: float) -> list[Row]:
        case = {"task": "recall", "budget": budget, "trial": "2000 tokens"}
        return [row(name, case, RECALL, "share", [share]), row(name, case, SECONDS, "s", [seconds])]

    rows = [
        scored("full", 500, 1.0), scored("full", 500, 0.5, "1/0"),
        scored("repeat", 500, 0.5), scored("repeat", 500, 0.25, "1/0"), scored("repeat", 250, 0.1),
        scored("repeat", 250, 1.0, "7/0"),  # which the full cache has not answered
        *recalled("repeat", 500, 0.8, 20.0), *recalled("repeat", 250, 0.6, 20.0),
        *recalled("infinipot-published", 500, 0.4, 10.0), *recalled("infinipot-published", 250, 0.3, 5.0),
    ]  # fmt: skip
    assert retention_summary(rows, 2000, "repeat") == pytest.approx(
        {
            "ruler_share_4to1": 0.5, "ruler_share_4to1_repeat": 0.5, "ruler_share_8to1": 0.1,
            "ruler_share_8to1_repeat": 0.1, "recall_4to1": 0.8, "recall_4to1_repeat": 0.8, "recall_8to1": 0.6,
            "recall_8to1_repeat": 0.6, "recall_4to1_infinipot-published": 0.4, "recall_8to1_infinipot-published": 0.3,
            "recall_pot_alone": 0.8, "reading_speed_vs_infinipot": (0.5 + 0.25) / 2,
            "reading_speed_vs_infinipot_repeat": (0.5 + 0.25) / 2,
        }
    )  # fmt: skip


@pytest.mark.parametrize(
    "options", [{"ratios": ()}, {"ratios": (0,)}, {"ratios": (9,)}, {"policies": "infinipot,full"}]
)
def test_what_cannot_be_measured_is_refused_before_anything_is_loaded(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        MEASUREMENT.config(lambda **_: plain_config(pot=POT), SimpleNamespace(**OPTIONS | options))
