"""LongBench v1 over the pot: its prompts, longest answers, stop rules and metrics, and the same budget for all.

The document is the prompt up to the end of the context, and the question is what follows it, so that all is read in
the order in which LongBench has it. If that is more than the reserve for a question holds, its beginning goes into
the document, too. The default settings find passages by the question alone, as those who retrieve do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from ondevice.config import EngineConfig
from ondevice.decode.prompt import Prompt
from ondevice.errors import ConfigError
from ondevice.events import Event
from ondevice.session.engine import Engine
from ondevice.session.session import Session
from ondevice.stage_clock import StageClock
from ondevice_bench.quality.contenders import budget_of, chosen
from ondevice_bench.quality.contest import Answering, Asked, Exam, Outcome, run_exams, write_answer
from ondevice_bench.quality.longbench_tasks import TASKS
from ondevice_bench.quality.measurement import Note, Setup
from ondevice_bench.quality.qa_summary import longbench_summary
from ondevice_bench.quality.rows import Text, read_texts, select_tasks
from ondevice_bench.quality.trials import Trial, measured

SCORE = "LongBench score"


def run_longbench(
    setup: Setup, texts: Sequence[tuple[Text, int]], names: Sequence[str], budget: int
) -> Iterator[Event | Note | Trial]:
    """Events and trials of all rows, given with the lengths of their contexts in tokens."""
    exams = (exam_of(setup.engine, text, num_tokens) for text, num_tokens in texts)
    yield from run_exams(setup, exams, names, (budget,), longbench_summary)


def exam_of(engine: Engine, text: Text, num_tokens: int) -> Exam:
    """A row of LongBench as it is put to the engine."""
    task, (question,), tokenizer = TASKS[text.task], text.questions, engine.loaded.tokenizer
    is_chat = task.chat and tokenizer.has_chat_template
    after = tokenizer.chat_parts(use_template=True).after_question if is_chat else ""
    end = tokenizer.encode_prompt(after) if after else []
    whole = task.question(question.text)
    reserve = engine.config.pot.reserve
    room = max(reserve - task.max_new_tokens, reserve // 2) - len(end)
    if room < 1:
        raise ConfigError(f"--reserve is {reserve}, too few for a question", fix="Raise --reserve.")
    ids, spans = tokenizer.encode(whole)
    cut = int(spans[-room, 0]) if len(ids) > room else 0
    prompt = Prompt([*tokenizer.encode(whole[cut:])[0].tolist(), *end])
    spoken = question.text.strip() or task.tail
    generation = replace(
        engine.config.generation,
        max_new_tokens=task.max_new_tokens,
        temperature=0.0,
        num_sources=0,
        chat=is_chat,
    )

    def answer(session: Session) -> Answering:
        generation = session.context.config.generation  # that of the contender
        clock = StageClock(session.context.decoder.synchronize)
        passages = session.find(spoken, prompt, generation, clock)
        events = session.answer(whole[cut:], prompt, generation, clock=clock, passages=passages)
        written = yield from write_answer(events, task.is_settled)
        return Outcome(task.scored(written), {SCORE: task.rate(written, question.references, question.classes)})

    asked = Asked(question.number, spoken, question.references, answer)
    return Exam(text.task, text.name, task.head, text.text, whole[:cut], num_tokens, generation, (asked,))


def _config(given: Callable[..., EngineConfig], options: Any) -> EngineConfig:
    config = given()
    chosen(options.contenders)
    budget_of(config, options.budget)
    for name in _names(options.tasks):
        if name not in TASKS:
            raise ConfigError(f"--tasks holds {name!r}", fix=f"Choose among {', '.join(TASKS)}.")
    return config


def _measure(setup: Setup, options: Any) -> Iterator[Event | Note | Trial]:
    engine = setup.engine
    texts, wanted = read_texts(options.data), _names(options.tasks) or tuple(TASKS)
    found = select_tasks(
        texts,
        wanted,
        engine.config.seed,
        limit=options.limit,
        lengths=(options.min_tokens, options.max_tokens),
        count=lambda text: len(engine.loaded.tokenizer.encode(text)[0]),
    )
    if not found:
        raise ConfigError("There is no row of LongBench with such a task and length", where=str(options.data))
    yield from run_longbench(setup, found, chosen(options.contenders), budget_of(engine.config, options.budget))


def _names(tasks: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in tasks.split(",") if name.strip())


MEASUREMENT = measured(_measure, _config, longbench_summary)
