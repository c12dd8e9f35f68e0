"""RULER over the pot: 13 tasks of one length, made from a seed, with the same budget for all contenders.

The question comes after reading, and the answer begins as RULER has it begin.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from ondevice.config import EngineConfig
from ondevice.decode.prompt import Prompt
from ondevice.errors import ConfigError
from ondevice.evaluation.contenders import budget_of, chosen
from ondevice.evaluation.contest import Answering, Asked, Exam, Outcome, run_exams, write_answer
from ondevice.evaluation.measurement import Measurement, Note, Setup
from ondevice.evaluation.qa_summary import task_summary
from ondevice.evaluation.ruler_tasks import TASKS, Sample, Sources, Task, make_sample, read_sources
from ondevice.evaluation.trials import Trial, rows_of
from ondevice.events import Event
from ondevice.session.engine import Engine
from ondevice.session.session import Session

SCORE = "RULER score"


def run_ruler(
    setup: Setup, tasks: Sequence[str], sources: Sources, length: int, num_rows: int, names: Sequence[str], budget: int
) -> Iterator[Event | Note | Trial]:
    """Events and trials of all rows; those of a task are made from the seed, the task and their number."""
    engine = setup.engine

    def count(text: str) -> int:
        return len(engine.loaded.tokenizer.encode(text)[0])

    def exams() -> Iterator[Exam]:
        for number in range(num_rows):
            for name in tasks:
                rng = random.Random(f"{engine.config.seed} {name} {length} {number}")
                sample = make_sample(TASKS[name], rng, sources, length, count)
                yield exam_of(engine, name, TASKS[name], str(number), sample)

    yield from run_exams(setup, exams(), names, budget, task_summary)


def exam_of(engine: Engine, name: str, task: Task, number: str, sample: Sample) -> Exam:
    """A row as it is put to the engine."""
    tokenizer = engine.loaded.tokenizer
    is_chat = engine.config.generation.chat and tokenizer.has_chat_template
    after = tokenizer.chat_parts(use_template=True).after_question if is_chat else ""
    prompt = [
        *tokenizer.encode(sample.tail)[0].tolist(),
        *(tokenizer.encode_prompt(after) if after else []),
        *tokenizer.encode(sample.prefix.lstrip() if is_chat else sample.prefix)[0].tolist(),
    ]
    if len(prompt) + 1 > engine.config.pot.reserve:
        raise ConfigError(
            f"The question of {name} has {len(prompt)} tokens", fix="Give a --reserve that holds it and its answer."
        )
    generation = replace(
        engine.config.generation,
        max_new_tokens=task.max_new_tokens,
        temperature=0.0,
        num_sources=0,
        chat=is_chat,
    )

    def is_settled(text: str) -> bool:
        return task.score(text, sample.references) == 1.0  # what follows changes nothing

    def answer(session: Session) -> Answering:
        written = yield from write_answer(session.answer(sample.tail, Prompt(prompt), generation), is_settled)
        return Outcome(written, {SCORE: task.score(written, sample.references)})

    asked = Asked(0, sample.query, sample.references, answer)
    num_tokens = len(tokenizer.encode(sample.context)[0])
    return Exam(name, number, sample.head, sample.context, "", num_tokens, generation, (asked,))


def _names(tasks: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in tasks.split(",") if name.strip())


def _config(given: Callable[..., EngineConfig], options: Any) -> EngineConfig:
    config = given()
    chosen(options.contenders)
    budget_of(config, options.budget)
    for name in _names(options.tasks):
        if name not in TASKS:
            raise ConfigError(f"--tasks holds {name!r}", fix=f"Choose among {', '.join(TASKS)}.")
    return config


def _measure(setup: Setup, options: Any) -> Iterator[Event | Note | Trial]:
    text = "" if options.text is None else "\n".join(page.text for page in setup.open(options.text).pages)
    sources = read_sources(text, options.squad, options.hotpot)
    has = {"": True, "text": bool(sources.sentences), "squad": bool(sources.squad), "hotpot": bool(sources.hotpot)}
    wanted = _names(options.tasks) or tuple(TASKS)
    tasks = [name for name in wanted if has[TASKS[name].needs]]
    for name in wanted:
        if name not in tasks:
            yield Note(f"{name} is left out: it needs --{TASKS[name].needs}.", "yellow")
    if not tasks:
        raise ConfigError("No task is left", fix="Name what they are made from: --text, --squad, --hotpot.")
    names, budget = chosen(options.contenders), budget_of(setup.engine.config, options.budget)
    yield from run_ruler(setup, tasks, sources, options.length, options.rows, names, budget)


MEASUREMENT = Measurement[Trial](
    _measure,
    rows_of,
    lambda trials: trials[-1].summary,
    config=_config,
    line=lambda trial: trial.line,
)
