"""The figures of question answering, from the rows of its trials."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ondevice.result import Row
from ondevice_bench.quality.trials import key_of, question_scores

_PEERS = ("truncation", "bm25", "minilm")
_Scores = Mapping[str, Mapping[tuple[Any, ...], float]]


def qa_summary(rows: Iterable[Row]) -> dict[str, float]:
    """The mean score of each contender, and how the default settings and the pot alone stand to others.

    Two contenders are compared over the questions that both have answered; figures without such questions are left
    out.
    """
    scores = question_scores(rows)
    summary: dict[str, float] = {}
    for key, contender in (("share_of_full_kv", "default"), ("pot_alone_share_of_full_kv", "pot")):
        ours, full = _means(scores, contender, "full")
        if full:
            summary[key] = ours / full
    for peer in _PEERS:
        if _shared(scores, "default", peer):
            ours, theirs = _means(scores, "default", peer)
            summary[f"default_minus_{peer}"] = ours - theirs
    return summary | {key_of(name): float(np.mean([*questions.values()])) for name, questions in scores.items()}


def longbench_summary(rows: Iterable[Row]) -> dict[str, float]:
    """Scores as LongBench reports them, 0 to 100: of each task and contender, and the average over the tasks.

    `average` is that of the default settings, or of the first contender where those were not measured.
    """
    tasks: dict[str, dict[str, list[float]]] = {}
    for one in rows:
        tasks.setdefault(one.contender, {}).setdefault(one.case["task"], []).append(one.p50)
    means = {name: {task: 100 * float(np.mean(values)) for task, values in of.items()} for name, of in tasks.items()}
    averages = {name: float(np.mean([*of.values()])) for name, of in means.items()}
    summary = {"average": averages.get("default", next(iter(averages.values()), 0.0))}
    summary |= {f"average_{key_of(name)}": value for name, value in averages.items()}
    return summary | {f"{task}_{key_of(name)}": value for name, of in means.items() for task, value in of.items()}


def task_summary(rows: Iterable[Row]) -> dict[str, float]:
    """Scores 0 to 1: of each task and contender, the average over the tasks, and its share of the full cache's.

    `average` and `share_of_full_kv` are those of the default settings, or of the first contender where those were not
    measured. A share is that over the rows that both have answered.
    """
    rows = list(rows)
    summary = {key: value / 100 for key, value in longbench_summary(rows).items()}
    scores = question_scores(rows)
    for name in scores:
        ours, full = _means(scores, name, "full")
        if full and name != "full":
            summary[f"share_of_full_kv_{key_of(name)}"] = ours / full
    first = "default" if "default" in scores else next(iter(scores), "")
    if (share := summary.get(f"share_of_full_kv_{key_of(first)}")) is not None:
        summary["share_of_full_kv"] = share
    return summary


def _shared(scores: _Scores, one: str, other: str) -> list[tuple[Any, ...]]:
    """The questions that both have answered."""
    return [question for question in scores.get(one, {}) if question in scores.get(other, {})]


def _means(scores: _Scores, one: str, other: str) -> tuple[float, float]:
    """The mean scores of both over the questions that they share; 0 where they share none."""
    questions = _shared(scores, one, other)
    if not questions:
        return 0.0, 0.0
    return tuple(float(np.mean([scores[name][question] for question in questions])) for name in (one, other))  # type: ignore[return-value]
