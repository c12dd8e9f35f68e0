"""The loop of question answering: every contender reads every text, and answers every question to it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from ondevice.config import EngineConfig, GenerationConfig
from ondevice.documents import Document
from ondevice.errors import ConfigError, PotError
from ondevice.events import AnswerToken, Event
from ondevice.session.engine import Engine
from ondevice.session.saving import load_session, save_session
from ondevice.session.session import Session
from ondevice_bench.quality.contenders import (
    CONTENDERS,
    Retriever,
    both_ends,
    config_of,
    fits_whole,
    room_for_text,
    text_document,
    with_room,
)
from ondevice_bench.quality.measurement import Note, Setup
from ondevice_bench.quality.trials import SECONDS, Trial, case_of, earlier_rows, is_done, written_down
from ondevice_bench.results.result import Row

_AROUND = 32  # tokens that stand around a question where a text is read for it


class Outcome(NamedTuple):
    """An answer, and its scores by metric."""

    answer: str
    scores: dict[str, float]


Answering = Generator[Event, None, Outcome]


@dataclass(frozen=True)
class Asked:
    """One question of an exam.

    Attributes:
        number: among those to its text.
        query: what a retriever looks for.
        references: right answers.
        answer: asks a session and scores what it says.
        task: where it comes from, if not from where its text does.
    """

    number: int
    query: str
    references: tuple[str, ...]
    answer: Callable[[Session], Answering]
    task: str = ""


@dataclass(frozen=True)
class Exam:
    """A text with its questions.

    Attributes:
        task, name: where it comes from, and which one of that.
        head, body, tail: the document in three parts, of which retrieval chooses from `body` alone.
        num_tokens: of `body`.
        generation: how answers are written.
        questions: in their order.
    """

    task: str
    name: str
    head: str
    body: str
    tail: str
    num_tokens: int
    generation: GenerationConfig
    questions: tuple[Asked, ...]


def run_exams(
    setup: Setup,
    exams: Iterable[Exam],
    names: Sequence[str],
    budgets: Sequence[int],
    summary: Callable[[Sequence[Row]], dict[str, float]],
    readings: Path | None = None,
) -> Iterator[Event | Note | Trial]:
    """The trials of all exams that have no rows yet, with events and notes between them.

    Args:
        names: of the contenders; those with equal settings answer once for all of them.
        budgets: slots of each; every exam is sat with each of them.
        summary: the figures of all rows so far.
        readings: a folder for saved pots of what was read whole, which the next run opens again.
    """
    rows = yield from earlier_rows(setup)
    for exam, budget in ((exam, budget) for exam in exams for budget in budgets):
        yield from sit(setup, exam, names, budget, rows, summary, readings)


def sit(
    setup: Setup,
    exam: Exam,
    names: Sequence[str],
    budget: int,
    rows: list[Row],
    summary: Callable[[Sequence[Row]], dict[str, float]],
    readings: Path | None = None,
) -> Iterator[Event | Note | Trial]:
    """The trials of one exam that `rows` lack, to which theirs are added; arguments as in `run_exams`."""
    for config, reads, group in groups(setup, exam, names, budget):
        yield from written_down(_sit(setup, exam, config, reads, group, budget, rows, readings), setup, rows, summary)


def write_answer(
    events: Iterator[Event], is_settled: Callable[[str], bool] = lambda _: False
) -> Generator[Event, None, str]:
    """The text of an answer as it was written, blanks around it included; ended early once `is_settled`."""
    text = ""
    for event in events:
        yield event
        if isinstance(event, AnswerToken):
            text += event.text
            if is_settled(text):
                break
    if isinstance(events, Generator):
        events.close()
    return text


def _read(
    engine: Engine, config: EngineConfig, document: Document, readings: Path | None
) -> Generator[Event, None, Session]:
    """A session that has read a document, or that did so in an earlier run."""
    read_with = {name: value for name, value in config.to_dict().items() if name != "generation"}
    text = "".join(page.text for page in document.pages)
    key = sha256(json.dumps([engine.loaded.fingerprint, read_with, text], sort_keys=True).encode()).hexdigest()
    path = None if readings is None else readings / f"{key[:32]}.pot"
    if path is not None and path.exists():
        return load_session(engine, path, config)
    session = engine.session(config)
    yield from session.read(document)
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        save_session(session, path)
    return session


def groups(
    setup: Setup, exam: Exam, names: Sequence[str], budget: int
) -> Iterator[tuple[EngineConfig, str, tuple[str, ...]]]:
    """Contenders with the same settings that read the same, and what those are."""
    given = replace(setup.engine.config, generation=exam.generation)
    groups: dict[tuple[EngineConfig, str], list[str]] = {}
    for name in names:
        contender = CONTENDERS[name]
        config = config_of(setup.engine, name, given, budget)
        if contender.is_full:
            config = with_room(config, exam.generation.max_new_tokens)
        if contender.asks_first:
            config = _for_one_question(setup, config, name, exam.questions)
        groups.setdefault((config, contender.reads), []).append(name)
    for (config, reads), group in groups.items():
        yield config, reads, tuple(group)


def _for_one_question(setup: Setup, config: EngineConfig, name: str, questions: Sequence[Asked]) -> EngineConfig:
    """The settings with the only question of an exam as the catalyst, and room for that.

    Raises:
        ConfigError: there are several.
    """
    if len(questions) > 1:
        raise ConfigError(f"{name} reads a text for one question", fix="Leave it out of --contenders.")
    query = questions[0].query
    room = len(setup.engine.loaded.tokenizer.encode(query)[0]) + _AROUND
    more = max(room - config.pot.reserve, 0)
    pot = replace(
        config.pot,
        catalyst="text",
        catalyst_text=query,
        reserve=config.pot.reserve + more,
        capacity=config.pot.capacity + more,
    )
    return replace(config, pot=pot)


def _sit(
    setup: Setup,
    exam: Exam,
    config: EngineConfig,
    reads: str,
    names: Sequence[str],
    budget: int,
    rows: Sequence[Row],
    readings: Path | None,
) -> Iterator[Event | Note | Trial]:
    """The missing trials of one exam for contenders with the same settings."""
    todo: dict[Asked, list[str]] = {}
    for asked in exam.questions:
        case = case_of(asked.task or exam.task, budget, exam.name, asked.number)
        if missing := [name for name in names if not is_done(rows, name, case)]:
            todo[asked] = missing
    if not todo:
        return
    about = f"{exam.task} {exam.name}, {', '.join(names)}"
    encode = setup.engine.loaded.tokenizer.encode
    num_around = sum(len(encode(part)[0]) for part in (exam.head, exam.tail) if part)
    if any(CONTENDERS[name].is_full for name in names) and not fits_whole(
        setup.engine, config, exam.num_tokens + num_around
    ):
        yield Note(f"{about}: {exam.num_tokens:,} tokens do not fit into the model's window, or into memory.")
        return
    retriever: Retriever | None = None
    session: Session | None = None
    seconds = 0.0
    for asked, missing in todo.items():
        began = time.perf_counter()
        try:
            if session is None or retriever is not None or reads == "text afresh":
                whole = {"text", "text afresh", "nothing yet"}
                body = exam.body if reads in whole else {"nothing": ""}.get(reads)
                room = max(room_for_text(setup.engine, config) - num_around, 1)
                if reads == "ends":
                    body = both_ends(exam.body, room, encode)
                elif body is None:
                    retriever = retriever or Retriever(reads, exam.body, encode, setup.report)
                    if not (body := retriever.find(asked.query, room, asked.references)):
                        continue  # no passage is the right one
                session = None  # its memory goes before another one takes as much
                document = text_document(exam.name, (exam.head, body, exam.tail))
                if reads == "nothing yet":
                    session = setup.engine.session(config)
                    yield from session.open(document)
                else:
                    session = yield from _read(setup.engine, config, document, None if retriever else readings)
                seconds = time.perf_counter() - began
            began = time.perf_counter()
            answer, scores = yield from asked.answer(session)
            answer_seconds = time.perf_counter() - began
            if reads == "nothing yet":
                scores[SECONDS] = seconds + answer_seconds
        except PotError as error:
            yield Note(f"{about}: question {asked.number} is left out. {error}", "yellow")
            continue
        for name in missing:
            yield Trial(
                contender=name,
                task=asked.task or exam.task,
                text=exam.name,
                num_tokens=exam.num_tokens,
                question=asked.number,
                budget=budget,
                scores=scores,
                answer=answer.strip(),
                references=asked.references,
                num_read=session.context.num_read,
                reading_seconds=seconds,
                answer_seconds=answer_seconds,
            )
