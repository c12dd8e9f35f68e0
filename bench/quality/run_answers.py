"""Answers to questions about documents, beside what a user would do instead: search, a full cache, the right passage.

Every contender gets the question as `ondevice ask` puts it. Free answers are scored by F1 over words, and by whether
the right one stood in what was before the model. A multiple-choice question is scored twice: by which choice the model
finds likeliest, and by the letter that it writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from ondevice.config import EngineConfig, GenerationConfig
from ondevice.decode.denial import NO_SENTENCE, NOT_THERE, NOT_YET
from ondevice.errors import ConfigError
from ondevice.events import WITHOUT_MODEL, AnswerFinished, Event, TokensRecalled
from ondevice.session.session import Session
from ondevice_bench.quality import scores
from ondevice_bench.quality.contenders import budget_of, chosen
from ondevice_bench.quality.contest import Answering, Asked, Exam, Outcome, run_exams, write_answer
from ondevice_bench.quality.likelihood import log_likelihoods
from ondevice_bench.quality.longbench_tasks import TASKS
from ondevice_bench.quality.measurement import Note, Setup
from ondevice_bench.quality.qa_summary import F1, HELD, REFUSED, REFUSED_FOREIGN, answers_summary
from ondevice_bench.quality.rows import Question, Text, read_texts, select
from ondevice_bench.quality.trials import Trial, measured

LIKELIHOOD, GENERATION = "choice by likelihood", "choice by generation"
Half = Literal["both", "choose", "report"]
SHORTLY = "Answer in a few words."
_LETTER = "Answer with the letter of the right choice."
_FIRST_FOREIGN = 1000  # the number of the first question of another text
_LETTER_TOKENS = 16  # of an answer that is a letter, with whatever stands around it


def run_answers(
    setup: Setup,
    texts: Sequence[tuple[Text, int]],
    names: Sequence[str],
    budget: int,
    readings: Path | None = None,
    foreign: int = 0,
) -> Iterator[Event | Note | Trial]:
    """Events and trials of all questions to some texts, given with their lengths in tokens.

    Args:
        setup: its engine with settings from `answers_config`.
        readings: a folder that keeps what was read, for the next run.
        foreign: questions of other texts that are put to each, which it should refuse.
    """
    generation = setup.engine.config.generation
    exams = (
        Exam(
            task=text.task,
            name=text.name,
            head="",
            body=text.text,
            tail="",
            num_tokens=num_tokens,
            generation=generation,
            questions=(
                *(asked(question, text.text, generation) for question in text.questions),
                *(_foreign(number, question) for number, question in enumerate(_of_others(texts, index)[:foreign])),
            ),
        )
        for index, (text, num_tokens) in enumerate(texts)
    )
    yield from run_exams(setup, exams, names, (budget,), answers_summary, readings)


def answers_config(config: EngineConfig, new_tokens: int) -> EngineConfig:
    """The settings with which questions are asked: those given, greedy, without looking for sources."""
    generation = replace(config.generation, max_new_tokens=new_tokens, temperature=0.0, num_sources=0)
    return replace(config, generation=generation)


def asked(question: Question, text: str, generation: GenerationConfig) -> Asked:
    """A question about a text as it is put to a session, and how its answer is scored.

    Whether the right one stood before the model is asked only of those that stand in the text, word for word.
    """

    def choose(session: Session) -> Answering:
        likelihoods = log_likelihoods(session, question.text, question.choices)
        likeliest = chr(ord("A") + likelihoods.index(max(likelihoods)))
        listed = "\n".join(f"({letter}) {text}" for letter, text in zip("ABCDEFGH", question.choices, strict=False))
        shortly = replace(generation, max_new_tokens=min(_LETTER_TOKENS, generation.max_new_tokens))
        answer = yield from write_answer(session.ask(f"{question.text}\n{listed}\n{_LETTER}", shortly))
        (right,) = question.references
        written = scores.chosen_letter(answer, question.choices)
        return Outcome(
            f"{likeliest} / {answer}", {LIKELIHOOD: float(likeliest == right), GENERATION: float(written == right)}
        )

    def reply(session: Session) -> Answering:
        generation = session.context.config.generation  # that of the contender
        noted = list[Event]()
        events = session.ask(f"{question.text}\n{SHORTLY}", generation)
        answer = yield from write_answer(_noted(events, noted))
        found = {F1: scores.best(scores.qa_f1, answer, question.references), REFUSED: _is_refused(answer)}
        if standing := [one for one in question.references if scores.holds(text, one)]:
            found[HELD] = scores.best(scores.holds, _before_model(session, noted), standing)
        return Outcome(answer, found)

    return Asked(question.number, question.text, question.references, choose if question.choices else reply)


def _foreign(number: int, question: Question) -> Asked:
    """A question whose answer is in another text."""

    def reply(session: Session) -> Answering:
        answer = yield from write_answer(session.ask(f"{question.text}\n{SHORTLY}"))
        return Outcome(answer, {REFUSED_FOREIGN: _is_refused(answer)})

    return Asked(_FIRST_FOREIGN + number, question.text, question.references, reply)


def _of_others(texts: Sequence[tuple[Text, int]], index: int) -> list[Question]:
    """Free questions of the texts after this one, and then of those before it, whose answers do not stand in it."""
    text = texts[index][0].text
    return [
        question
        for other, _ in (*texts[index + 1 :], *texts[:index])
        for question in other.questions[:1]
        if not question.choices and not scores.best(scores.holds, text, question.references)
    ]


def _is_refused(answer: str) -> float:
    return float(answer.strip() in (NOT_THERE, NOT_YET) or answer.startswith(NO_SENTENCE))


def _noted(events: Iterator[Event], noted: list[Event]) -> Iterator[Event]:
    for event in events:
        if isinstance(event, TokensRecalled | AnswerFinished):
            noted.append(event)
        yield event


def _before_model(session: Session, noted: Sequence[Event]) -> str:
    """The text that came back for the question, or that is the answer; all of it where nothing did."""
    text, spans = session.context.tokens.whole()
    for event in reversed(noted):
        if isinstance(event, AnswerFinished) and event.stop_reason in WITHOUT_MODEL:
            return event.text
        if isinstance(event, TokensRecalled):
            return "\n".join(text[spans[start, 0] : spans[stop - 1, 1]] for start, stop in event.tokens)
    return text


def _asks(text: Text) -> bool:
    """True if a text comes with questions that have short answers: of LongBench some tasks do."""
    task = TASKS.get(text.task)
    return task is None or (task.chat and task.score is scores.qa_f1)


def _is_in_half(text: Text, half: Half) -> bool:
    """True for one half of the documents, by their text alone: settings are chosen by one and reported on the other."""
    return half == "both" or sha256(text.text.encode()).digest()[0] % 2 == (half == "report")


def _config(given: Callable[..., EngineConfig], options: Any) -> EngineConfig:
    config = answers_config(given(), options.new_tokens)
    chosen(options.contenders)
    budget_of(config, options.budget)
    return config


def _measure(setup: Setup, options: Any) -> Iterator[Event | Note | Trial]:
    encode, config = setup.engine.loaded.tokenizer.encode, setup.engine.config
    texts = select(
        [text for text in read_texts(options.data) if _asks(text) and _is_in_half(text, options.half)],
        config.seed,
        limit=options.limit,
        questions=options.questions,
        lengths=(options.min_tokens, options.max_tokens),
        count=lambda text: len(encode(text)[0]),
    )
    found = list(texts)
    if not found:
        raise ConfigError("No text has questions and a length as asked for", where=str(options.data))
    names, budget = chosen(options.contenders), budget_of(config, options.budget)
    yield from run_answers(setup, found, names, budget, options.readings, options.foreign)


MEASUREMENT = measured(_measure, _config, answers_summary)
