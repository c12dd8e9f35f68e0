"""RULER over the pot: 13 tasks of one length, made from a seed, with the same budget for all contenders.

The question comes after reading, and the answer begins as RULER has it begin.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ondevice.config import EngineConfig
from ondevice.errors import ConfigError
from ondevice.events import Event
from ondevice_bench.quality.contenders import budget_of, chosen
from ondevice_bench.quality.contest import Exam, run_exams
from ondevice_bench.quality.measurement import Note, Setup
from ondevice_bench.quality.qa_summary import task_summary
from ondevice_bench.quality.ruler_tasks import TASKS, Sources, make_sample, read_sources
from ondevice_bench.quality.samples import exam_of
from ondevice_bench.quality.trials import Trial, measured
from ondevice_bench.results.result import Row

SCORE = "RULER score"


def run_ruler(
    setup: Setup,
    tasks: Sequence[str],
    sources: Sources,
    length: int,
    num_rows: int,
    names: Sequence[str],
    budgets: Sequence[int],
    summary: Callable[[Sequence[Row]], dict[str, float]] = task_summary,
) -> Iterator[Event | Note | Trial]:
    """Events and trials of all rows; those of a task are made from the seed, the task and their number."""
    engine = setup.engine

    def count(text: str) -> int:
        return len(engine.loaded.tokenizer.encode(text)[0])

    def exams() -> Iterator[Exam]:
        for number in range(num_rows):
            for name in tasks:
                rng = random.Random(f"{engine.config.seed} {name} {length} {number}")
                task = TASKS[name]
                sample = make_sample(task, rng, sources, length, count)
                yield exam_of(
                    engine, name, str(number), sample, task.max_new_tokens, SCORE, task.score, ends_early=True
                )

    yield from run_exams(setup, exams(), names, budgets, summary)


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
    yield from run_ruler(setup, tasks, sources, options.length, options.rows, names, (budget,))


MEASUREMENT = measured(_measure, _config, task_summary)
