"""Comparisons: intervals over questions, paired differences, and which rows are held against each other."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from ondevice_bench.results.comparison import Line, lines_of
from ondevice_bench.results.intervals import FEWEST, estimate, mean
from ondevice_bench.results.reading import RECALL
from ondevice_bench.results.result import Row, new_result, row
from tests.builders.models import plain_config


def lines(command: str, *rows: Row) -> list[Line]:
    return lines_of(replace(new_result(command, plain_config(), torch.device("cpu")), rows=rows))


def scored(contender: str, scores: list[float], budget: int = 512) -> list[Row]:
    cases = [{"task": f"task {i}", "budget": budget, "trial": "0/0"} for i in range(len(scores))]
    return [row(contender, case, "RULER score", "share", [score]) for case, score in zip(cases, scores, strict=True)]


def test_an_interval_covers_what_the_normal_distribution_says() -> None:
    scores = np.random.default_rng(1).normal(0.5, 0.1, 400)
    found = mean(scores, is_share=False)
    assert found.value == pytest.approx(scores.mean())
    assert found.low == pytest.approx(scores.mean() - 1.96 * scores.std() / 20, abs=1e-3)
    assert found.high == pytest.approx(scores.mean() + 1.96 * scores.std() / 20, abs=1e-3)
    assert found == mean(scores, is_share=False)


def test_all_right_is_not_certain() -> None:
    assert mean(np.ones(9), is_share=True) == (1.0, pytest.approx(0.664, abs=1e-3), 1.0, 9)
    assert mean(np.zeros(9), is_share=True) == (0.0, 0.0, pytest.approx(0.336, abs=1e-3), 9)
    assert mean(np.full(9, 0.5), is_share=True) == (0.5, 0.5, 0.5, 9)
    assert mean(np.ones(9), is_share=False) == (1.0, 1.0, 1.0, 9)


def test_few_questions_have_no_interval() -> None:
    assert mean(np.ones(FEWEST - 1), is_share=True) == (1.0, None, None, FEWEST - 1)


def test_differences_are_paired() -> None:
    easy_and_hard = np.random.default_rng(2).integers(0, 2, 40).astype(float)
    pairs = np.stack((easy_and_hard, easy_and_hard - 0.01), axis=1)
    found = estimate(pairs, lambda means: means[0] - means[1])
    assert (found.low, found.high) == (pytest.approx(0.01), pytest.approx(0.01))


def test_only_questions_that_both_have_answered_count_for_the_difference() -> None:
    own, others = scored("pot", [1.0] * 10), scored("full", [1.0] * 10)[:6]
    (line,) = lines("ondevice eval ruler", *own, *others)
    assert (line.figure.n, line.rivals[0].figure.n, line.rivals[0].by.n) == (10, 6, 6)


def test_a_full_cache_is_held_against_pots_of_all_sizes_but_not_against_other_questions() -> None:
    rows = [*scored("full", [1.0] * 5), *scored("pot", [0.0] * 5), *scored("pot", [0.0] * 5, budget=256)]
    assert [[one.name for one in line.rivals] for line in lines("ondevice eval ruler", *rows)] == [["full"], ["full"]]
    short = [replace(one, case=one.case | {"task": "qa1_4k"}) for one in scored("full", [1.0])]
    long = [replace(one, case=one.case | {"task": "qa1_128k"}) for one in scored("pot", [1.0])]
    assert [line.rivals for line in lines("ondevice eval babilong", *short, *long)] == [(), ()]


def test_recall_is_the_share_between_no_document_and_a_full_cache() -> None:
    def losses(contender: str, *values: float) -> list[Row]:
        cases = [{"tokens": 6000, "depth": i / 10} for i in range(len(values))]
        return [row(contender, case, "loss", "nats", [value]) for case, value in zip(cases, values, strict=True)]

    full, none = losses("full KV", *[1.0] * 6), losses("no document", *[3.0] * 6)
    (line,) = lines("ondevice eval recall", *losses("a pot", *[1.5] * 6), *full, *none)
    assert (line.metric, line.unit, line.figure) == (RECALL, "share", (0.75, 0.75, 0.75, 6))
    assert [(one.name, one.by.value, one.side) for one in line.rivals] == [
        ("full KV", -0.25, "behind"),
        ("no document", 0.75, "ahead of"),
    ]


def test_less_is_better_where_a_metric_says_so() -> None:
    def losses(contender: str, value: float) -> list[Row]:
        return [row(contender, {"tokens": i}, "loss", "nats", [value]) for i in range(6)]

    (line,) = lines("ondevice eval perplexity", *losses("pot", 2.0), *losses("h2o", 1.0), *losses("random", 3.0))
    assert {one.name: one.side for one in line.rivals} == {"h2o": "behind", "random": "ahead of"}


def test_the_last_distillation_counts_wherever_it_was() -> None:
    def rates(contender: str, tokens: int, rate: float) -> list[Row]:
        return [row(contender, {"tokens": tokens, "trial": i}, "hit rate", "share", [rate]) for i in range(6)]

    rows = [*rates("infinipot", 100, 0.9), *rates("infinipot", 300, 0.2), *rates("random", 290, 0.3)]
    (line,) = lines("ondevice eval hit-rate", *rows)
    assert (line.figure.value, line.rivals[0].by.value, line.rivals[0].side) == (
        pytest.approx(0.2),
        pytest.approx(-0.1),
        "behind",
    )


def test_a_reading_that_several_questions_share_is_one_round() -> None:
    rows = [row("a pot", {"length": 9, "depth": d, "trial": 0}, "reading speed", "tokens/s", [5.0]) for d in (0.1, 0.9)]
    assert lines("ondevice eval passkey", *rows)[0].figure == (5.0, None, None, 1)


def test_units_are_not_mixed() -> None:
    rows = [row("a", {}, "memory grew", unit, [value]) for unit, value in (("%", 1.0), ("bytes", 900.0))]
    figures = [(line.unit, line.figure.value) for line in lines("ondevice bench reliability", *rows)]
    assert figures == [("%", 1.0), ("bytes", 900.0)]


def test_commands_that_nobody_described_have_figures_and_no_rivals() -> None:
    rows = [row(name, {}, "time", "s", [1.0, 2.0]) for name in ("a", "b")]
    assert [(line.name, line.rivals) for line in lines("ondevice bench new", *rows)] == [("a", ()), ("b", ())]
