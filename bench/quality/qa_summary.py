"""The figures of question answering, from the rows of its trials."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ondevice_bench.quality.trials import SECONDS, key_of, question_scores
from ondevice_bench.results.intervals import estimate
from ondevice_bench.results.result import Row

F1, HELD = "F1", "answer in what was read for it"
REFUSED, REFUSED_FOREIGN = "refused", "refused a question of another document"
SEARCHES = ("bm25", "minilm", "fused")
SEVERAL_PLACES = ("hotpotqa", "2wikimqa", "musique")  # tasks whose answers follow from more than one passage
_OURS, _EARLY, _FULL = "default", "now", "full"
_Scores = Mapping[str, Mapping[tuple[Any, ...], float]]


def answers_summary(rows: Iterable[Row]) -> dict[str, float]:
    """The mean score of each contender, and how the default settings stand to the best search and to a full cache.

    Contenders are compared over the questions that all of them have answered, with intervals of 95 % (bootstrap over
    questions, paired); figures without such questions are left out.
    """
    rows = list(rows)
    scores = question_scores(one for one in rows if one.metric not in (HELD, REFUSED, REFUSED_FOREIGN, SECONDS))
    held = question_scores(one for one in rows if one.metric == HELD)
    summary = dict[str, float]()
    searches = [name for name in SEARCHES if name in scores]
    if _OURS in scores and searches:
        questions = _shared(scores, _OURS, *searches)
        summary |= _beyond_best(scores, searches, questions, "product_minus_best_search")
        several = [question for question in questions if question[0] in SEVERAL_PLACES]
        summary |= _beyond_best(scores, searches, several, "product_minus_best_search_multihop")
    if _OURS in scores and _FULL in scores:
        ours, full = _means(scores, _OURS, _FULL)
        summary |= {"share_of_full_kv": ours / full} if full else {}
        fitting = _shared(scores, _OURS, _FULL, *searches)
        summary |= _beyond_best(scores, [_FULL, *searches], fitting, "fits_minus_best")
    for key, name in (
        ("answer_in_recalled", _OURS),
        ("answer_in_now", _EARLY),
        *((f"answer_in_{name}", name) for name in SEARCHES),
    ):
        found = [score for case, score in held.get(name, {}).items() if case[0] not in SEVERAL_PLACES]
        summary |= {key: float(np.mean(found))} if found else {}
    for key, metric in (("refused_answerable", REFUSED), ("refused_unanswerable", REFUSED_FOREIGN)):
        refused = question_scores(one for one in rows if one.metric == metric).get(_OURS, {})
        summary |= {key: float(np.mean([*refused.values()]))} if refused else {}
    if waited := [one.p50 for one in rows if one.metric == SECONDS and one.contender == _EARLY]:
        summary["seconds_to_first_answer"] = float(np.mean(waited))
    return summary | {key_of(name): float(np.mean([*questions.values()])) for name, questions in scores.items()}


def _beyond_best(
    scores: _Scores, rivals: Sequence[str], questions: Sequence[tuple[Any, ...]], key: str
) -> dict[str, float]:
    """Our mean score less that of the best rival over these questions, with its interval."""
    if not questions:
        return {}
    best = max(rivals, key=lambda name: sum(scores[name][question] for question in questions))
    pairs = np.array([[scores[_OURS][question], scores[best][question]] for question in questions])
    found = estimate(pairs, lambda means: means[0] - means[1])
    bounds = {} if found.low is None or found.high is None else {f"{key}_low": found.low, f"{key}_high": found.high}
    return {key: found.value, **bounds}


def longbench_summary(rows: Iterable[Row]) -> dict[str, float]:
    """Scores as LongBench reports them, 0 to 100: of each task and contender, and the average over the tasks.

    `average` is that of the default settings, or of the first contender where those were not measured. What these are
    beyond another one is the mean over the rows that both have answered, with its interval.
    """
    rows = list(rows)
    tasks: dict[str, dict[str, list[float]]] = {}
    for one in rows:
        tasks.setdefault(one.contender, {}).setdefault(one.case["task"], []).append(one.p50)
    means = {name: {task: 100 * float(np.mean(values)) for task, values in of.items()} for name, of in tasks.items()}
    averages = {name: float(np.mean([*of.values()])) for name, of in means.items()}
    summary = {"average": averages.get("default", next(iter(averages.values()), 0.0))}
    summary |= {f"average_{key_of(name)}": value for name, value in averages.items()}
    scores = question_scores(rows)
    for name in (rival for rival in scores if rival != _OURS and _OURS in scores):
        beyond = _beyond_best(scores, [name], _shared(scores, _OURS, name), f"default_minus_{key_of(name)}")
        summary |= {key: 100 * value for key, value in beyond.items()}
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


def _shared(scores: _Scores, *names: str) -> list[tuple[Any, ...]]:
    """The questions that all of these have answered."""
    return [question for question in scores.get(names[0], {}) if all(question in scores.get(of, {}) for of in names)]


def _means(scores: _Scores, one: str, other: str) -> tuple[float, float]:
    """The mean scores of both over the questions that they share; 0 where they share none."""
    questions = _shared(scores, one, other)
    if not questions:
        return 0.0, 0.0
    return tuple(float(np.mean([scores[name][question] for question in questions])) for name in (one, other))  # type: ignore[return-value]
