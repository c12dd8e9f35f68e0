"""Runs the passkey test on an engine, trial by trial, and turns the trials into rows.

Plain completion, greedy, no chat template: as in the original test.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from statistics import fmean
from typing import Any

from ondevice.config import EngineConfig, GenerationConfig
from ondevice.errors import ConfigError
from ondevice.events import AnswerFinished, DocumentRead, Event, TokensRead
from ondevice.session.engine import Engine, Session
from ondevice_bench.quality.completion import complete
from ondevice_bench.quality.measurement import Measurement, Note, Setup
from ondevice_bench.quality.passkey import (
    QUESTION,
    Case,
    Passkey,
    make_passkey,
    make_passkeys,
    passkey_document,
    plan,
)
from ondevice_bench.quality.shared_prefix import SharedPrefix
from ondevice_bench.results.names import contender_name
from ondevice_bench.results.result import Row, row

ACCURACY = "accuracy"
READING = "reading speed"
# The longest key has 5 digits, each a token of its own in the models we know, with a space and a full stop around.
_NEW_TOKENS = 10


@dataclass(frozen=True, slots=True)
class Trial:
    """The outcome of one case; `num_keys` are in its text, `accuracy` is the share of right answers up to it."""

    case: Case
    num_tokens: int
    key: int
    answer: str
    is_right: bool
    tokens_per_second: float
    num_keys: int = 1
    accuracy: float = 0.0


def passkey_config(config: EngineConfig) -> EngineConfig:
    """The settings with which the test is run: those given, but greedy and without a chat template."""
    return replace(config, generation=GenerationConfig(max_new_tokens=_NEW_TOKENS, chat=False, num_sources=0))


def run_passkey(engine: Engine, cases: Iterable[Case]) -> Iterator[Event | Trial]:
    """Events of each trial, with its `Trial` after them; texts of one length read their common beginning once.

    Args:
        engine: with settings from `passkey_config`.
    """

    def count(text: str) -> int:
        return len(engine.loaded.tokenizer.encode(text)[0])

    for _, group in groupby(sorted(cases, key=lambda case: (case.length, case.depth)), key=lambda case: case.length):
        trials = [(case, make_passkey(case, engine.config.seed, count)) for case in group]
        prefix = SharedPrefix(engine, passkey_document(trials[-1][1]))  # the text whose key comes last
        for case, passkey in trials:
            session = yield from prefix.session(passkey_document(passkey))
            yield from _run(session, case, passkey)


def run_together(engine: Engine, cases: Iterable[Case], todo: Collection[Case]) -> Iterator[Event | Trial]:
    """As `run_passkey`, but the keys of all `cases` of a length and trial are in one text, which is read once.

    Args:
        todo: which of them are asked for.
    """

    def count(text: str) -> int:
        return len(engine.loaded.tokenizer.encode(text)[0])

    def text_of(case: Case) -> tuple[int, int]:
        return case.length, case.trial

    for _, group in groupby(sorted(cases, key=lambda case: (*text_of(case), case.depth)), key=text_of):
        together = list(group)
        if not set(together) & set(todo):
            continue
        passkeys = make_passkeys(together, engine.config.seed, count)
        session = engine.session()
        for _ in session.open(passkey_document(passkeys[0])):
            pass
        speed = yield from _read(session)
        for case, passkey in zip(together, passkeys, strict=True):
            if case in todo:
                yield from _ask(session, case, passkey, speed, len(together))


def rows_of(trials: Sequence[Trial], config: EngineConfig) -> list[Row]:
    """Two rows for each trial."""
    rows = []
    for trial in trials:
        contender = contender_name(config) + (f", {trial.num_keys} keys a text" if trial.num_keys > 1 else "")
        case = asdict(trial.case)
        rows.append(row(contender, case, ACCURACY, "share", [float(trial.is_right)]))
        rows.append(row(contender, case, READING, "tokens/s", [trial.tokens_per_second]))
    return rows


def still_to_do(cases: Iterable[Case], rows: Iterable[Row]) -> tuple[Case, ...]:
    """The cases that have no row yet."""
    done = [r.case for r in rows if r.metric == READING]  # the last row of a trial
    return tuple(case for case in cases if asdict(case) not in done)


def _run(session: Session, case: Case, passkey: Passkey) -> Iterator[Event | Trial]:
    speed = yield from _read(session)
    yield from _ask(session, case, passkey, speed)


def _read(session: Session) -> Generator[Event, None, float]:
    """Read what is left of the document; tokens per second."""
    num_tokens, speed = 0, 0.0
    for event in session.resume():
        yield event
        if isinstance(event, TokensRead):
            num_tokens += event.num_tokens
        if isinstance(event, DocumentRead):
            speed = num_tokens / event.seconds
    return speed


def _ask(session: Session, case: Case, passkey: Passkey, speed: float, num_keys: int = 1) -> Iterator[Event | Trial]:
    answer = ""
    for event in complete(session, passkey.question):
        yield event
        if isinstance(event, AnswerFinished):
            answer = event.text
    yield Trial(case, passkey.num_tokens, passkey.key, answer, passkey.is_right(answer), speed, num_keys)


def _config(given: Callable[..., EngineConfig], options: Any) -> EngineConfig:
    plan(options.lengths, options.depths, options.trials)  # what cannot be planned is refused here
    if options.together and not options.late_question:
        raise ConfigError(
            "--together asks for one key after the other, and --known-question reads with one question",
            fix="Leave one of them out.",
        )
    return passkey_config(given(question="" if options.late_question else QUESTION))


def _measure(setup: Setup, options: Any) -> Iterator[Event | Note | Trial]:
    cases = plan(options.lengths, options.depths, options.trials)
    todo = still_to_do(cases, setup.earlier)
    if len(todo) < len(cases):
        yield Note(f"Going on with {setup.out_file}: {len(cases) - len(todo)} of {len(cases)} trials are done.")
    right = [r.p50 for r in setup.earlier if r.metric == ACCURACY]
    items = run_together(setup.engine, cases, todo) if options.together else run_passkey(setup.engine, todo)
    for item in items:
        if isinstance(item, Trial):
            right.append(float(item.is_right))
            item = replace(item, accuracy=sum(right) / len(right))
        yield item


MEASUREMENT = Measurement[Trial](
    _measure,
    rows_of,
    lambda trials: {ACCURACY: trials[-1].accuracy},
    config=_config,
    line=lambda trial: (
        f"{'right' if trial.is_right else 'wrong'}  {trial.num_tokens:>9,} tokens, depth {trial.case.depth:<4g} "
        f"trial {trial.case.trial}: key {trial.key}, answer {trial.answer[:40]!r}, "
        f"{trial.tokens_per_second:,.0f} tokens/s, {trial.accuracy:.0%} right so far"
    ),
    figures=lambda rows, _: {ACCURACY: fmean(one.p50 for one in rows if one.metric == ACCURACY)},
)
