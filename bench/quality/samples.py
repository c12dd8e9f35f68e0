"""Rows that are made rather than read: a text of any length, what is asked of it, and how that is put to the engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ondevice.config import GenerationConfig
from ondevice.decode.prompt import Prompt
from ondevice.errors import ConfigError
from ondevice.session.engine import Engine
from ondevice.session.session import Session
from ondevice_bench.quality.contest import Answering, Asked, Exam, Outcome, write_answer

CountTokens = Callable[[str], int]
Score = Callable[[str, Sequence[str]], float]  # of an answer and its references, 0 to 1


@dataclass(frozen=True, slots=True)
class Sample:
    """One row: the prompt is `head + context + tail`, the answer begins with `prefix`; `query` is what is asked for."""

    head: str
    context: str
    tail: str
    prefix: str
    references: tuple[str, ...]
    query: str


def longest(make: Callable[[int], Sample], max_new_tokens: int, length: int, count: CountTokens) -> Sample:
    """The largest row whose prompt and answer have at most `length` tokens.

    Args:
        make: a row from how much is put into it, 1 or more; the same row each time.

    Raises:
        ConfigError: not even the smallest is so short.
    """

    def fits(size: int) -> bool:
        row = make(size)
        return count(row.head + row.context + row.tail + row.prefix) + max_new_tokens <= length

    low, high = 1, 2
    if not fits(low):
        raise ConfigError(f"{length} tokens are too few for a row of such a task", fix="Ask for longer ones.")
    while fits(high):
        if make(high) == make(low):  # all there is
            return make(low)
        low, high = high, 2 * high
    while high - low > max(low // 100, 1):
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return make(low)


def exam_of(
    engine: Engine,
    task: str,
    number: str,
    sample: Sample,
    max_new_tokens: int,
    metric: str,
    score: Score,
    *,
    ends_early: bool = False,
) -> Exam:
    """A row as it is put to the engine: the question comes after reading, and the answer begins as the row has it.

    Args:
        ends_early: an answer that is right so far cannot become wrong, and is written no further.

    Raises:
        ConfigError: the question does not fit into the reserve.
    """
    asked = asked_of(engine, task, 0, sample, max_new_tokens, metric, score, ends_early=ends_early)
    return exam_with(engine, task, number, sample, max_new_tokens, (asked,))


def exam_with(
    engine: Engine, task: str, number: str, sample: Sample, max_new_tokens: int, questions: tuple[Asked, ...]
) -> Exam:
    """The text of a row with questions to it."""
    num_tokens = len(engine.loaded.tokenizer.encode(sample.context)[0])
    generation = _generation(engine, max_new_tokens)
    return Exam(task, number, sample.head, sample.context, "", num_tokens, generation, questions)


def asked_of(
    engine: Engine,
    task: str,
    number: int,
    sample: Sample,
    max_new_tokens: int,
    metric: str,
    score: Score,
    *,
    ends_early: bool = False,
) -> Asked:
    """The question of a row, as number `number` of its text; else as `exam_of`."""
    tokenizer, generation = engine.loaded.tokenizer, _generation(engine, max_new_tokens)
    after = tokenizer.chat_parts(use_template=True).after_question if generation.chat else ""
    prompt = [
        *tokenizer.encode(sample.tail)[0].tolist(),
        *(tokenizer.encode_prompt(after) if after else []),
        *tokenizer.encode(sample.prefix.lstrip() if generation.chat else sample.prefix)[0].tolist(),
    ]
    if len(prompt) + 1 > engine.config.pot.reserve:
        raise ConfigError(
            f"The question of {task} has {len(prompt)} tokens", fix="Give a --reserve that holds it and its answer."
        )

    def is_settled(text: str) -> bool:
        return ends_early and score(text, sample.references) == 1.0

    def answer(session: Session) -> Answering:
        written = yield from write_answer(session.answer(sample.tail, Prompt(prompt), generation), is_settled)
        return Outcome(written, {metric: score(written, sample.references)})

    return Asked(number, sample.query, sample.references, answer, task)


def _generation(engine: Engine, max_new_tokens: int) -> GenerationConfig:
    is_chat = engine.config.generation.chat and engine.loaded.tokenizer.has_chat_template
    return replace(
        engine.config.generation, max_new_tokens=max_new_tokens, temperature=0.0, num_sources=0, chat=is_chat
    )
