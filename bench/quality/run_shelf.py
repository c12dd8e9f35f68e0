"""A shelf of documents: one question over all of them, beside the document that knows alone, and beside search.

Each document hides a needle of RULER's in sentences of its own; every needle is asked for, after all is read.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ondevice.config import EngineConfig
from ondevice.errors import ConfigError
from ondevice.events import Event
from ondevice.session.engine import Session
from ondevice.session.shelf import pointed_at, shelve
from ondevice_bench.quality.contenders import CONTENDERS, GAP, Retriever, budget_of, room_for_text, text_document
from ondevice_bench.quality.contest import Exam
from ondevice_bench.quality.measurement import Note, Setup
from ondevice_bench.quality.ruler_tasks import TASKS, Sources, make_sample, read_sources
from ondevice_bench.quality.run_ruler import SCORE
from ondevice_bench.quality.samples import exam_of
from ondevice_bench.quality.trials import Trial, case_of, earlier_rows, is_done, measured, question_scores, written_down
from ondevice_bench.results.result import Row

ALONE, SHELF, SEARCH = "alone", "shelf", "bm25"
_TASK = "niah_single_2"  # words ask for numbers, in a text


@dataclass(frozen=True)
class Asker:
    """Puts questions to one session, and writes down what it says."""

    name: str
    budget: int
    row: int

    def trial(self, session: Session, exam: Exam, question: int, reading_seconds: float) -> Iterator[Event | Trial]:
        began, asked = time.perf_counter(), exam.questions[0]
        answer, scores = yield from asked.answer(session)
        yield Trial(
            contender=self.name,
            task=exam.task,
            text=str(self.row),
            num_tokens=exam.num_tokens,
            question=question,
            budget=self.budget,
            scores=scores,
            answer=answer.strip(),
            references=asked.references,
            num_read=session.context.num_read,
            reading_seconds=reading_seconds,
            answer_seconds=time.perf_counter() - began,
        )


def summary(rows: Sequence[Row]) -> dict[str, float]:
    """The mean score of each contender, the shelf's share of the right document's, and what it is beyond search."""
    means = {name: sum(of.values()) / len(of) for name, of in question_scores(rows).items()}
    found = dict(means)
    if SHELF in means and means.get(ALONE):
        found["shelf_share_of_single"] = means[SHELF] / means[ALONE]
    if SHELF in means and SEARCH in means:
        found["shelf_minus_bm25"] = means[SHELF] - means[SEARCH]
    return found


def run_shelf(
    setup: Setup, sources: Sources, length: int, num_documents: int, num_rows: int
) -> Iterator[Event | Note | Trial]:
    """Events and trials of all rows; the documents of one are made from the seed and its number."""
    budget = budget_of(setup.engine.config, None)
    rows = yield from earlier_rows(setup)
    for number in range(num_rows):
        cases = [case_of(_TASK, budget, str(number), question) for question in range(num_documents)]
        missing = [name for name in (ALONE, SHELF, SEARCH) if not all(is_done(rows, name, case) for case in cases)]
        if not missing:
            continue
        exams = list(_documents(setup, sources, length, num_documents, number))
        new = (
            item
            for item in _row(setup, exams, missing, budget, number)
            if not isinstance(item, Trial) or not is_done(rows, item.contender, item.case)
        )
        yield from written_down(new, setup, rows, summary)


def _documents(setup: Setup, sources: Sources, length: int, num_documents: int, number: int) -> Iterator[Exam]:
    """Documents whose sentences are not those of the others, as far as the text goes."""
    engine, task, share = setup.engine, TASKS[_TASK], len(sources.sentences) // num_documents

    def count(text: str) -> int:
        return len(engine.loaded.tokenizer.encode(text)[0])

    for which in range(num_documents):
        rng = random.Random(f"{engine.config.seed} shelf {length} {number} {which}")
        own = replace(sources, sentences=[*sources.sentences[which * share :], *sources.sentences[: which * share]])
        sample = make_sample(task, rng, own, length, count)
        yield exam_of(engine, _TASK, str(number), sample, task.max_new_tokens, SCORE, task.score, ends_early=True)


def _row(
    setup: Setup, exams: Sequence[Exam], names: Sequence[str], budget: int, number: int
) -> Iterator[Event | Trial]:
    engine = setup.engine
    given = replace(engine.config, generation=exams[0].generation)
    if {ALONE, SHELF} & set(names):
        config, sessions, seconds = CONTENDERS["pot+tier"].config(given, budget), list[Session](), list[float]()
        for which, exam in enumerate(exams):
            began, session = time.perf_counter(), engine.session(config)
            yield from session.read(text_document(f"{which}.txt", (exam.head, exam.body, exam.tail)))
            sessions.append(session)
            seconds.append(time.perf_counter() - began)
        for which, (exam, session) in enumerate(zip(exams, sessions, strict=True)):
            yield from Asker(ALONE, budget, number).trial(session, exam, which, seconds[which])
        for which, exam in enumerate(exams):
            chosen = [sessions[index] for index in pointed_at(sessions, exam.questions[0].query)]
            shelf = shelve(engine, chosen, config).session
            yield from Asker(SHELF, budget, number).trial(shelf, exam, which, sum(seconds))
        del sessions, session, chosen, shelf
    if SEARCH in names:
        config = CONTENDERS[SEARCH].config(given, budget)
        text, head = GAP.join(exam.body for exam in exams), exams[0].head
        retriever = Retriever(SEARCH, text, engine.loaded.tokenizer.encode, setup.report)
        room = room_for_text(engine, config) - len(engine.loaded.tokenizer.encode(head)[0])
        for which, exam in enumerate(exams):
            began, session = time.perf_counter(), engine.session(config)
            body = retriever.find(exam.questions[0].query, max(room, 1))
            yield from session.read(text_document("passages.txt", (head, body)))
            yield from Asker(SEARCH, budget, number).trial(session, exam, which, time.perf_counter() - began)


def _config(given: Callable[..., EngineConfig], options: Any) -> EngineConfig:
    config = given()
    budget_of(config, None)
    return config


def _measure(setup: Setup, options: Any) -> Iterator[Event | Note | Trial]:
    sources = read_sources("\n".join(page.text for page in setup.open(options.text).pages), None, None)
    if len(sources.sentences) < options.documents:
        raise ConfigError("The text has fewer sentences than there are documents", fix="Name a longer --text.")
    yield from run_shelf(setup, sources, options.length, options.documents, options.rows)


MEASUREMENT = measured(_measure, _config)
