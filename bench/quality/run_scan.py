"""Lists scattered over a text: a scan of all of it, beside the same question to the product, search and a full cache.

Each document is asked to list and to count. It is read once by pot and cache; a scan looks at all of it for each
question, a search at its best passages.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from ondevice.config import EngineConfig
from ondevice.errors import ConfigError
from ondevice.events import Event
from ondevice.scan.scan import ChunkScanned, Scan
from ondevice.session.session import Session
from ondevice_bench.quality.contenders import (
    CONTENDERS,
    Retriever,
    budget_of,
    fits_whole,
    room_for_text,
    text_document,
    with_room,
)
from ondevice_bench.quality.contest import write_answer
from ondevice_bench.quality.measurement import Measurement, Note, Setup
from ondevice_bench.quality.ruler_tasks import read_sources
from ondevice_bench.quality.samples import Sample
from ondevice_bench.quality.scan_tasks import KINDS, count_error, count_of, items_of, list_scores, make_list
from ondevice_bench.quality.trials import Trial, earlier_rows, is_done, rows_of, written_down
from ondevice_bench.results.result import Row

SCAN, ASK, SEARCH, FULL = NAMES = "scan", "default", "bm25", "full"
_NEW_TOKENS = 200
_RECALL, _PRECISION, _COUNT = "recall", "precision", "count error"


def summary(rows: Sequence[Row]) -> dict[str, float]:
    """Means of each contender over all documents, and at each length; `scan_recall` is the first of them."""
    lengths = sorted({int(one.case["length"]) for one in rows})
    found: dict[str, float] = {}
    for length, contender, metric in product((None, *lengths), NAMES, (_RECALL, _PRECISION, _COUNT)):
        values = [
            one.p50
            for one in rows
            if (one.contender, one.metric) == (contender, metric) and length in (None, one.case["length"])
        ]
        at = "" if length is None else f"_{length}"
        if values and (length is None or len(lengths) > 1):
            found[f"{contender}_{metric.replace(' ', '_')}{at}"] = float(np.mean(values))
    return found


def run_scan(
    setup: Setup, sentences: Sequence[str], lengths: Sequence[int], num_trials: int
) -> Iterator[Event | Note | Trial]:
    """Events and trials; each trial is one document, and one after the other of each kind of list."""
    engine = setup.engine
    rows = yield from earlier_rows(setup)

    def count(text: str) -> int:
        return len(engine.loaded.tokenizer.encode(text)[0])

    kinds = list(KINDS.items())
    for length, number in product(lengths, range(num_trials)):
        name, kind = kinds[number % len(kinds)]
        rng = random.Random(f"{engine.config.seed} scan {length} {number}")
        sample = make_list(kind, rng, sentences, length, count)
        trial = Trial("", name, str(number), length, 0, 0, {}, "", sample.references, 0, 0.0, 0.0)
        for contender in NAMES:
            if is_done(rows, contender, _case(replace(trial, question=1))):  # the last of its two
                continue
            items = _sit(setup, contender, sample, (kind.lists, kind.counts), trial)
            yield from written_down(items, setup, rows, summary, _rows)


def _sit(
    setup: Setup, contender: str, sample: Sample, questions: tuple[str, str], trial: Trial
) -> Iterator[Event | Note | Trial]:
    """Two trials of one contender: the list and the number."""
    document = text_document("lists.txt", (sample.context,))
    trial = replace(trial, contender=contender)
    if contender == SCAN:
        for number, question in enumerate(questions):
            began, scan = time.perf_counter(), Scan(setup.engine, document, question)
            for event in scan.run():
                if isinstance(event, ChunkScanned):
                    setup.report("Scanning", event.num_read / event.num_total)
                else:
                    yield event
            things, ledger = [finding.text for finding in scan.findings.found], scan.ledger
            said = len(things) if number else things
            yield replace(
                trial,
                question=number,
                scores=_scores(said, sample.references),
                answer=" | ".join(things),
                num_read=ledger.tokens_read,
                reading_seconds=time.perf_counter() - began,
            )
        return
    given = setup.engine.config
    generation = replace(given.generation, max_new_tokens=_NEW_TOKENS, temperature=0.0, num_sources=0)
    budget = budget_of(given, None)
    config = CONTENDERS[contender].config(replace(given, generation=generation), budget)
    if contender == FULL:
        config = with_room(config, _NEW_TOKENS)
        if not fits_whole(setup.engine, config, trial.num_tokens):
            yield Note(f"{trial.num_tokens:,} tokens do not fit into the model's window, or into memory.")
            return
    retriever: Retriever | None = None
    if contender == SEARCH:
        retriever = Retriever(SEARCH, sample.context, setup.engine.loaded.tokenizer.encode, setup.report)
    session: Session | None = None
    seconds = 0.0
    for number, question in enumerate(questions):
        began = time.perf_counter()
        if session is None or retriever is not None:
            if retriever is not None:
                found = retriever.find(question, room_for_text(setup.engine, config))
                document, session = text_document("lists.txt", (found,)), None
            session = setup.engine.session(config)
            yield from session.read(document)
            seconds = time.perf_counter() - began
        began = time.perf_counter()
        answer = yield from write_answer(session.ask(question))
        yield replace(
            trial,
            question=number,
            budget=budget,
            scores=_scores(count_of(answer) if number else items_of(answer), sample.references),
            answer=answer.strip(),
            num_read=session.context.num_read,
            reading_seconds=seconds,
            answer_seconds=time.perf_counter() - began,
        )


def _scores(said: int | Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """Of a number, how wrong it is; of a list, how much of it is right."""
    if isinstance(said, int):
        return {_COUNT: count_error(said, references)}
    scores = list_scores(said, references)
    return {metric: scores[metric] for metric in (_RECALL, _PRECISION)}


def _case(trial: Trial) -> dict[str, Any]:
    return {"length": trial.num_tokens, "task": trial.task, "trial": f"{trial.text}/{trial.question}"}


def _rows(trials: Sequence[Trial], config: EngineConfig | None = None) -> list[Row]:
    """A row for each trial and metric; what decides here is the length, not the budget."""
    return [replace(one, case=_case(trial)) for trial in trials for one in rows_of([trial], config)]


def _config(given: Callable[..., EngineConfig], options: Any) -> EngineConfig:
    config = given()
    budget_of(config, None)
    if options.trials < 1 or min(options.lengths) < 1:
        raise ConfigError("There is nothing to measure", fix="Give lengths and trials of at least 1.")
    return config


def _measure(setup: Setup, options: Any) -> Iterator[Event | Note | Trial]:
    sources = read_sources("\n".join(page.text for page in setup.open(options.text).pages), None, None)
    if not sources.sentences:
        raise ConfigError("The text has no sentences", fix="Name another --text.")
    yield from run_scan(setup, sources.sentences, options.lengths, options.trials)


MEASUREMENT = Measurement[Trial](
    _measure,
    _rows,
    lambda trials: trials[-1].summary,
    config=_config,
    line=lambda trial: trial.line,
    figures=lambda rows, _: summary(rows),
)
