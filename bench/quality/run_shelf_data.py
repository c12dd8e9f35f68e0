"""A shelf of LongBench's passages: its questions over several of them, with every passage as a document of its own.

Beside the shelf, whose documents are chosen by rare words, stand one whose documents the index of the library chooses,
one of the passages that hold an answer, which nobody knows beforehand, and BM25 over all of them.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ondevice.config import EngineConfig
from ondevice.errors import ConfigError
from ondevice.events import Event
from ondevice.session.engine import Session
from ondevice.session.shelf import MOST, pointed_at, shelve
from ondevice_bench.quality.contenders import CONTENDERS, GAP, Retriever, budget_of, room_for_text, text_document
from ondevice_bench.quality.contest import Exam
from ondevice_bench.quality.measurement import Note, Setup
from ondevice_bench.quality.rows import Text, read_texts, select_tasks
from ondevice_bench.quality.run_find import index_of, order_by, split
from ondevice_bench.quality.run_longbench import exam_of
from ondevice_bench.quality.run_shelf import ALONE, SEARCH, SHELF, Asker, summary
from ondevice_bench.quality.trials import Trial, case_of, earlier_rows, is_done, measured, question_scores, written_down
from ondevice_bench.results.result import Row

INDEX = "index"
_TASKS = ("hotpotqa", "2wikimqa", "musique")


def figures(rows: Sequence[Row]) -> dict[str, float]:
    """As `run_shelf.summary`, with the share that a shelf chosen by the index has of the right documents' score."""
    found, means = summary(rows), {name: sum(of.values()) / len(of) for name, of in question_scores(rows).items()}
    if INDEX in means and means.get(ALONE):
        found["index_share_of_single"] = means[INDEX] / means[ALONE]
    return found


def run_rows(setup: Setup, texts: Sequence[tuple[Text, int]]) -> Iterator[Event | Note | Trial]:
    """Events and trials of all rows, given with the lengths of their contexts in tokens."""
    budget = budget_of(setup.engine.config, None)
    rows = yield from earlier_rows(setup)
    for number, (text, num_tokens) in enumerate(texts):
        passages, right = split(text.text, text.questions[0].references)
        case = case_of(text.task, budget, str(number), 0)
        if all(is_done(rows, name, case) for name in (ALONE, SHELF, INDEX, SEARCH)):
            continue
        exam = exam_of(setup.engine, text, num_tokens)
        new = (
            item
            for item in _row(setup, exam, passages, right, budget, number)
            if not isinstance(item, Trial) or not is_done(rows, item.contender, item.case)
        )
        yield from written_down(new, setup, rows, figures)


def _row(
    setup: Setup, exam: Exam, passages: Sequence[str], right: Sequence[int], budget: int, number: int
) -> Iterator[Event | Trial]:
    engine, query = setup.engine, exam.questions[0].query
    given = replace(engine.config, generation=exam.generation)
    config, sessions, began = CONTENDERS["pot+tier"].config(given, budget), list[Session](), time.perf_counter()
    for which, passage in enumerate(passages):
        session = engine.session(config)
        yield from session.read(text_document(f"{which}.txt", (passage,)))
        sessions.append(session)
    seconds = time.perf_counter() - began
    with tempfile.TemporaryDirectory(prefix="ondevice-find-") as made:
        closest = order_by(index_of(passages, Path(made)), query, len(passages))
    for name, chosen in (
        (ALONE, list(right)[:MOST]),
        (SHELF, pointed_at(sessions, query)),
        (INDEX, sorted(closest[:MOST].tolist())),
    ):
        shelf = shelve(engine, [sessions[index] for index in chosen], config).session
        yield from Asker(name, budget, number).trial(shelf, exam, 0, seconds)
    del sessions, session, shelf
    config = CONTENDERS[SEARCH].config(given, budget)
    retriever = Retriever(SEARCH, GAP.join(passages), engine.loaded.tokenizer.encode, setup.report)
    began, session = time.perf_counter(), engine.session(config)
    body = retriever.find(query, max(room_for_text(engine, config), 1))
    yield from session.read(text_document("passages.txt", (body,)))
    yield from Asker(SEARCH, budget, number).trial(session, exam, 0, time.perf_counter() - began)


def _has_place(text: Text) -> bool:
    passages, right = split(text.text, text.questions[0].references)
    return 0 < len(right) < len(passages)


def _config(given: Callable[..., EngineConfig], options: Any) -> EngineConfig:
    config = given()
    budget_of(config, None)
    return config


def _measure(setup: Setup, options: Any) -> Iterator[Event | Note | Trial]:
    engine = setup.engine
    # An answer such as yes stands in no passage: which documents are right is not known then.
    texts = [text for text in read_texts(options.data) if text.task in _TASKS and _has_place(text)]
    encode = engine.loaded.tokenizer.encode
    found = select_tasks(
        texts, _TASKS, engine.config.seed, limit=options.limit, count=lambda text: len(encode(text)[0])
    )
    if not found:
        raise ConfigError(f"There is no row of {', '.join(_TASKS)} with a right passage", where=str(options.data))
    yield from run_rows(setup, found)


MEASUREMENT = measured(_measure, _config)
