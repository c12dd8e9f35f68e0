"""Runs the passkey test on an engine, trial by trial, and turns the trials into rows.

Plain completion, greedy, no chat template: as in the original test.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from itertools import groupby

from ondevice.config import EngineConfig, GenerationConfig
from ondevice.contender import contender_name
from ondevice.engine import Engine, Session
from ondevice.evaluation.passkey import QUESTION, Case, Passkey, make_passkey, passkey_document
from ondevice.evaluation.shared_prefix import SharedPrefix
from ondevice.events import AnswerFinished, DocumentRead, Event, TokensRead
from ondevice.results import Result, Row, row

ACCURACY = "accuracy"
READING = "reading speed"
# The longest key has 5 digits, each a token of its own in the models we know, with a space and a full stop around.
_NEW_TOKENS = 10


@dataclass(frozen=True, slots=True)
class Trial:
    """The outcome of one case."""

    case: Case
    num_tokens: int
    key: int
    answer: str
    is_right: bool
    tokens_per_second: float


def passkey_config(config: EngineConfig) -> EngineConfig:
    """The settings with which the test is run: those given, but greedy and without a chat template."""
    return replace(config, generation=GenerationConfig(max_new_tokens=_NEW_TOKENS, chat=False, num_sources=0))


def run_passkey(engine: Engine, cases: Iterable[Case]) -> Iterator[Event | Trial]:
    """Events of each trial, with its `Trial` behind them; texts of one length read their common beginning once.

    Args:
        engine: with settings from `passkey_config`.
    """

    def count(text: str) -> int:
        return len(engine.loaded.tokenizer.encode(text)[0])

    for _, group in groupby(sorted(cases, key=lambda case: (case.length, case.depth)), key=lambda case: case.length):
        trials = [(case, make_passkey(case, engine.config.seed, count)) for case in group]
        prefix = SharedPrefix(engine, passkey_document(trials[-1][1]))  # the text whose key comes last
        for case, passkey in trials:
            yield from _run(prefix.session(passkey_document(passkey)), case, passkey)


def add_trial(result: Result, trial: Trial, config: EngineConfig) -> Result:
    """The result with the rows of one more trial, and the share of right answers so far in its summary."""
    contender, case = contender_name(config), asdict(trial.case)
    new = (
        row(contender, case, ACCURACY, "share", [float(trial.is_right)]),
        row(contender, case, READING, "tokens/s", [trial.tokens_per_second]),
    )
    rows = (*result.rows, *new)
    right = [r.p50 for r in rows if r.metric == ACCURACY]
    return replace(result, rows=rows, summary={ACCURACY: sum(right) / len(right)})


def still_to_do(cases: Iterable[Case], rows: Iterable[Row]) -> tuple[Case, ...]:
    """The cases that have no row yet."""
    done = [r.case for r in rows if r.metric == READING]  # the last row of a trial
    return tuple(case for case in cases if asdict(case) not in done)


def _run(session: Session, case: Case, passkey: Passkey) -> Iterator[Event | Trial]:
    num_tokens, speed, answer = 0, 0.0, ""
    for event in session.resume():
        yield event
        if isinstance(event, TokensRead):
            num_tokens += event.num_tokens
        if isinstance(event, DocumentRead):
            speed = num_tokens / event.seconds
    for event in session.complete(QUESTION):
        yield event
        if isinstance(event, AnswerFinished):
            answer = event.text
    yield Trial(case, passkey.num_tokens, passkey.key, answer, passkey.is_right(answer), speed)
