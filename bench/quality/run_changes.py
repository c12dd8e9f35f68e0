"""Two versions of a text, of which is asked what changed: the comparison, beside a search and a full cache of both.

A version has some things changed, left out or added among the sentences of a text; others stand in both as they are.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice, product
from typing import Any

import numpy as np

from ondevice.config import EngineConfig
from ondevice.documents.tokens import DocumentTokens
from ondevice.errors import ConfigError
from ondevice.events import Event
from ondevice.scan.findings import stands_in
from ondevice.search.sentences import sentences as sentences_of
from ondevice.session.collection import collect
from ondevice.session.session import Session
from ondevice_bench.quality.contenders import budget_of, text_document
from ondevice_bench.quality.contest import Answering, Asked, Exam, Outcome, sit, write_answer
from ondevice_bench.quality.measurement import Note, Setup
from ondevice_bench.quality.run_answers import answers_config
from ondevice_bench.quality.scan_tasks import KINDS
from ondevice_bench.quality.trials import Trial, earlier_rows, is_done, measured, written_down
from ondevice_bench.results.intervals import estimate
from ondevice_bench.results.result import Row

COMPARISON, SEARCH, FULL = NAMES = "comparison", "bm25", "full"
RECALL, PRECISION = "recall", "precision"
QUESTION = "What changed between first.txt and second.txt?"
_EDITS, _SAME = 6, 6  # things that are changed, left out or added, two of each; things that stand in both
_NEW_TOKENS = 400
_FEWEST_TOKENS = 800  # of a version
_FEWEST_CHARS = 30  # of a sentence of the text


@dataclass(frozen=True, slots=True)
class Versions:
    """Two texts; `edited` are the things of which one has another one or none, `same` those of both."""

    first: str
    second: str
    edited: tuple[str, ...]
    same: tuple[str, ...]


def make_versions(
    chance: random.Random, sentences: Sequence[str], num_tokens: int, count: Callable[[str], int]
) -> Versions:
    """Versions of a text, each of about as many tokens."""
    kinds, things = cycle(KINDS.values()), dict[str, str]()
    while len(things) < 2 * _EDITS + _SAME:
        kind = next(kinds)
        things[kind.make(chance)] = chance.choice(kind.says)
    said = [(thing, says.format(thing)) for thing, says in things.items()]
    edited, same = said[:_EDITS], said[2 * _EDITS :]
    pairs = [(sentence, sentence) for _, sentence in same]
    for number, (thing, sentence) in enumerate(edited):
        other = things[thing].format(said[_EDITS + number][0])
        pairs.append([(sentence, other), (sentence, ""), ("", sentence)][number % 3])
    text, size, at = list[tuple[str, str]](), 0, chance.randrange(len(sentences))
    for sentence in islice(cycle(sentences), at, None):
        size += count(sentence)
        if size > num_tokens - 20 * len(pairs):
            break
        text.append((sentence, sentence))
    for pair in pairs:
        text.insert(chance.randrange(len(text) + 1), pair)
    first, second = (" ".join(filter(None, version)) for version in zip(*text, strict=True))
    return Versions(first, second, tuple(thing for thing, _ in edited), tuple(thing for thing, _ in same))


def scores_of(answer: str, versions: Versions) -> dict[str, float]:
    """The share of edits that an answer names, and of the things that it names those that were edited."""
    found = sum(bool(stands_in(thing, answer)) for thing in versions.edited)
    wrong = sum(bool(stands_in(thing, answer)) for thing in versions.same)
    return {RECALL: found / len(versions.edited), PRECISION: found / (found + wrong) if found else 0.0}


def summary(rows: Sequence[Row]) -> dict[str, float]:
    """Means of each contender, and the recall that ours has beyond the others', with its interval."""
    found: dict[str, float] = {}
    recall: dict[str, dict[str, float]] = {}
    for name, metric in product(NAMES, (RECALL, PRECISION)):
        if held := {str(one.case): one.p50 for one in rows if (one.contender, one.metric) == (name, metric)}:
            found[f"{name}_{metric}"] = float(np.mean([*held.values()]))
            if metric == RECALL:
                recall[name] = held
    for other in recall.keys() - {COMPARISON}:
        ours, theirs = recall.get(COMPARISON, {}), recall[other]
        if both := sorted(ours.keys() & theirs.keys()):
            more = estimate(np.array([(ours[one], theirs[one]) for one in both]), lambda means: means[0] - means[1])
            found[f"recall_minus_{other}"] = more.value
            if more.low is not None and more.high is not None:
                found |= {f"recall_minus_{other}_low": more.low, f"recall_minus_{other}_high": more.high}
    return found


def run_changes(
    setup: Setup, sentences: Sequence[str], lengths: Sequence[int], num_trials: int
) -> Iterator[Event | Note | Trial]:
    """Events and trials; each trial is one pair of versions, asked once by each contender."""
    engine = setup.engine
    rows, budget = (yield from earlier_rows(setup)), budget_of(engine.config, None)

    def count(text: str) -> int:
        return len(engine.loaded.tokenizer.encode(text)[0])

    for length, number in product(lengths, range(num_trials)):
        chance = random.Random(f"{engine.config.seed} changes {length} {number}")
        versions = make_versions(chance, sentences, length, count)
        exam = _exam(engine.config, versions, f"{length}-{number}", count)
        yield from sit(setup, exam, (SEARCH, FULL), budget, rows, summary)
        trial = Trial(
            COMPARISON, exam.task, exam.name, exam.num_tokens, 0, budget, {}, "", versions.edited, 0, 0.0, 0.0
        )
        if not is_done(rows, COMPARISON, trial.case):
            yield from written_down(_compare(setup, versions, trial), setup, rows, summary)


def _exam(config: EngineConfig, versions: Versions, name: str, count: Callable[[str], int]) -> Exam:
    """Both versions as one text, each after its name, and the question."""

    def reply(session: Session) -> Answering:
        answer = yield from write_answer(session.ask(QUESTION, config.generation))
        return Outcome(answer, scores_of(answer, versions))

    body = f"first.txt:\n{versions.first}\n\nsecond.txt:\n{versions.second}"
    asked = Asked(0, QUESTION, versions.edited, reply)
    return Exam("changes", name, "", body, "", count(body), config.generation, (asked,))


def _compare(setup: Setup, versions: Versions, trial: Trial) -> Iterator[Event | Trial]:
    """The trial of the product, which compares what was laid together."""
    texts, began = list[DocumentTokens](), time.perf_counter()
    for name, text in (("first.txt", versions.first), ("second.txt", versions.second)):
        tokens = DocumentTokens(text_document(name, (text,)), setup.engine.loaded.tokenizer.encode)
        tokens.ensure(sys.maxsize)
        texts.append(tokens)
    session = collect(setup.engine, texts)
    seconds, began = time.perf_counter() - began, time.perf_counter()
    answer = yield from write_answer(session.ask(QUESTION))
    yield replace(
        trial,
        scores=scores_of(answer, versions),
        answer=answer.strip(),
        reading_seconds=seconds,
        answer_seconds=time.perf_counter() - began,
    )


def _config(given: Callable[..., EngineConfig], options: Any) -> EngineConfig:
    config = answers_config(given(), _NEW_TOKENS)
    budget_of(config, None)
    if options.trials < 1 or min(options.lengths) < _FEWEST_TOKENS:
        raise ConfigError("There is nothing to measure", fix=f"Give trials, and lengths of at least {_FEWEST_TOKENS}.")
    return config


def _measure(setup: Setup, options: Any) -> Iterator[Event | Note | Trial]:
    text = "\n".join(page.text for page in setup.open(options.text).pages)
    found = [" ".join(text[start:stop].split()) for start, stop in sentences_of(text)]
    if not (sentences := [one for one in found if len(one) >= _FEWEST_CHARS and one.endswith(".")]):
        raise ConfigError("The text has no sentences", fix="Name another --text.")
    yield from run_changes(setup, sentences, options.lengths, options.trials)


MEASUREMENT = measured(_measure, _config, summary)
