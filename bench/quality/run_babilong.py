"""BABILong over the pot: the same stories at every length, so that only what lies between their facts differs."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np

from ondevice.config import EngineConfig
from ondevice.errors import ConfigError
from ondevice.events import Event
from ondevice_bench.quality.babilong_tasks import MAX_NEW_TOKENS, TASKS, Story, make_sample, read_stories, score
from ondevice_bench.quality.babilong_together import apart, make_samples
from ondevice_bench.quality.contenders import budget_of, chosen
from ondevice_bench.quality.contest import Exam, run_exams
from ondevice_bench.quality.measurement import Note, Setup
from ondevice_bench.quality.ruler_tasks import read_sources
from ondevice_bench.quality.samples import asked_of, exam_of, exam_with
from ondevice_bench.quality.trials import Trial, key_of, measured, question_scores
from ondevice_bench.results.result import Row

SCORE = "right"


def babilong_summary(rows: Iterable[Row]) -> dict[str, float]:
    """Of each length the mean over the tasks, 0 to 1: of every contender, and without a name that of the default
    settings, or of the first contender where those were not measured."""
    scores = question_scores(rows)
    first = "default" if "default" in scores else next(iter(scores), "")
    summary: dict[str, float] = {}
    for name, questions in scores.items():
        lengths: dict[str, dict[str, list[float]]] = {}
        for (task, *_), value in questions.items():
            task_name, _, length = str(task).partition("_")
            lengths.setdefault(length, {}).setdefault(task_name, []).append(value)
        for length, tasks in lengths.items():
            mean = float(np.mean([float(np.mean(values)) for values in tasks.values()]))
            key = f"mean_{'_'.join(dict.fromkeys((min(tasks), max(tasks))))}_{length}"
            summary |= {f"{key}_{key_of(name)}": mean} | ({key: mean} if name == first else {})
    return summary


def _length_name(length: int) -> str:
    return f"{length // 1024}k" if length % 1024 == 0 else str(length)


def _names(options: Any) -> tuple[str, ...]:
    return tuple(name.strip() for name in options.tasks.split(",") if name.strip()) or tuple(TASKS)


def _config(given: Callable[..., EngineConfig], options: Any) -> EngineConfig:
    config = given()
    chosen(options.contenders)
    budget_of(config, options.budget)
    for name in _names(options):
        if name not in TASKS:
            raise ConfigError(f"--tasks holds {name!r}", fix=f"Choose among {', '.join(TASKS)}.")
    if any(length < 0 for length in options.lengths):
        raise ConfigError("--lengths holds a negative one", fix="Give 0 for the stories alone, or more.")
    if options.text is None and any(options.lengths):
        raise ConfigError("--text is missing", fix="Name the text that stories are told in.")
    return config


def _measure(setup: Setup, options: Any) -> Iterator[Event | Note | Trial]:
    engine = setup.engine
    text = "" if options.text is None else "\n".join(page.text for page in setup.open(options.text).pages)
    sentences = read_sources(text, None, None).sentences
    stories = {task: read_stories(options.data, task) for task in _names(options)}
    answers = {task: sorted({story.answer for story in of}) for task, of in stories.items()}

    def count(part: str) -> int:
        return len(engine.loaded.tokenizer.encode(part)[0])

    def exam(task: str, number: int, length: int) -> Exam:
        rng = random.Random(f"{engine.config.seed} {task} {number}")
        story: Story = rng.choice(stories[task])
        sample = make_sample(task, story, rng, sentences, length, count)
        right = partial(_right, question=story.question, answers=answers[task])
        return exam_of(engine, f"{task}_{_length_name(length)}", str(number), sample, MAX_NEW_TOKENS, SCORE, right)

    def exam_together(length: int) -> Exam:
        rng, name = random.Random(f"{engine.config.seed} together"), f"{_length_name(length)}_together"
        chosen_ones = [(task, rng.choice(stories[task])) for _ in range(options.rows) for task in stories]
        told = apart(chosen_ones, answers)
        with_tasks = [(task, story) for (task, _), (story, _) in zip(chosen_ones, told, strict=True)]
        samples = make_samples(with_tasks, rng, sentences, length, count)
        questions = tuple(
            asked_of(
                engine, f"{task}_{name}", number, sample, MAX_NEW_TOKENS, SCORE,
                partial(_right, question=story.question, answers=own),
            )
            for number, ((task, story), (_, own), sample) in enumerate(zip(with_tasks, told, samples, strict=True))
        )  # fmt: skip
        return exam_with(engine, name, "book", samples[0], MAX_NEW_TOKENS, questions)

    if options.together:
        exams = (exam_together(length) for length in options.lengths)
    else:
        exams = (
            exam(task, number, length)
            for length in options.lengths
            for number in range(options.rows)
            for task in stories
        )
    names, budget = chosen(options.contenders), budget_of(engine.config, options.budget)
    yield from run_exams(setup, exams, names, (budget,), babilong_summary)


def _right(answer: str, references: tuple[str, ...], *, question: str, answers: list[str]) -> float:
    return score(answer, references[0], question, answers)


MEASUREMENT = measured(_measure, _config, babilong_summary)
