"""Speculative decoding beside plain decoding: the same greedy answers or not, how many drafts stand, and how fast.

Who drafts has to know the document: reading it with drafts is measured beside reading it without.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from ondevice.config import GenerationConfig, SpecConfig
from ondevice.documents import Document
from ondevice.events import AnswerFinished, AnswerToken
from ondevice.result import Row, row
from ondevice.session.engine import Engine
from ondevice.session.session import Session
from ondevice_bench.quality.completion import complete
from ondevice_bench.speed.turns import speedup_row, take_turns

_PROMPT_TOKENS = 12
_PLAIN, _ALWAYS, _WHILE_IT_PAYS = "plain decoding", "drafts always", "drafts while they pay"


@dataclass(frozen=True, slots=True)
class Answer:
    """One prompt answered in one way: its tokens, seconds per token after the first one, and the account."""

    contender: str
    tokens: tuple[int, ...]
    seconds_per_token: float
    finished: AnswerFinished


def run_speculative(engine: Engine, document: Document, num_prompts: int, num_new: int) -> Iterator[list[Answer]]:
    """For every prompt the answers of all contenders, one after the other, greedy.

    All have read the document; the prompts are pieces of it. Drafts are `num_draft` tokens long, 3 if that is 0. No
    token ends an answer meanwhile: the number of steps must not depend on what the model wants to say.
    """
    spec = _drafting(engine)
    contenders = {
        _PLAIN: SpecConfig(),
        _ALWAYS: replace(spec, falls_back=False),
        _WHILE_IT_PAYS: replace(spec, falls_back=True),
    }
    generation = GenerationConfig(max_new_tokens=num_new, chat=False, num_sources=0, stops_loops=False)
    sessions = {}
    for name, one in contenders.items():
        session = sessions[name] = engine.session(replace(engine.config, spec=one, generation=generation))
        for _ in session.read(document):
            pass
    tokens, tokenizer = sessions[_PLAIN].context.tokens, engine.loaded.tokenizer
    eos_ids, tokenizer.eos_ids = tokenizer.eos_ids, frozenset()
    try:
        for start in np.linspace(0, tokens.num_tokens - _PROMPT_TOKENS, num_prompts).astype(int):
            prompt = tokenizer.decode(tokens.ids(start, start + _PROMPT_TOKENS).tolist())
            yield [_answer(name, session, prompt) for name, session in sessions.items()]
    finally:
        tokenizer.eos_ids = eos_ids


def run_reading(engine: Engine, document: Document, rounds: int) -> list[Row]:
    """Rows of reading a document with drafts to come and without, in turn: that which drafts is read for it, too."""
    num_tokens = 0

    def read(spec: SpecConfig) -> None:
        nonlocal num_tokens
        session = engine.session(replace(engine.config, spec=spec))
        for _ in session.read(document):
            pass
        num_tokens = session.context.num_read

    contenders = {_PLAIN: partial(read, SpecConfig()), _ALWAYS: partial(read, _drafting(engine))}
    seconds = take_turns(
        contenders, engine.decoder.device, min_rounds=rounds, max_rounds=rounds, budget_seconds=float("inf")
    )
    case = {"tokens": num_tokens}
    rows = [row(name, case, "reading speed", "tokens/s", [num_tokens / s for s in seconds[name]]) for name in seconds]
    return [*rows, speedup_row(seconds, case, "reading", _ALWAYS, _PLAIN)]


def _drafting(engine: Engine) -> SpecConfig:
    """The settings' speculator, for drafts alone."""
    spec = engine.config.spec
    return replace(spec, keep=1.0, adaptive_keep=None, num_draft=spec.num_draft or 3)


def rows_of(rounds: Sequence[Sequence[Answer]], num_new: int) -> list[Row]:
    """Speeds, ratios of neighbours, the share of equal answers and of accepted drafts."""
    by_name: dict[str, list[Answer]] = {}
    for answers in rounds:
        for one in answers:
            by_name.setdefault(one.contender, []).append(one)
    case, plain, rows = {"prompts": len(rounds), "new tokens": num_new}, by_name[_PLAIN], []
    for name, answers in by_name.items():
        rows.append(row(name, case, "decoding speed", "tokens/s", [1 / one.seconds_per_token for one in answers]))
        if name == _PLAIN:
            continue
        ratios = [a.seconds_per_token / b.seconds_per_token for a, b in zip(plain, answers, strict=True)]
        same = [a.tokens == b.tokens for a, b in zip(plain, answers, strict=True)]
        finished = [one.finished for one in answers]
        accepted, drafted = sum(f.drafts.num_accepted for f in finished), sum(f.drafts.num_drafted for f in finished)
        # After an answer that gave drafts up some go without any.
        has_none = [f.drafts.fell_back or f.drafts.num_drafted == 0 for f in finished]
        again = sum(f.drafts.num_read_again for f in finished) / sum(f.num_tokens for f in finished)
        rows += [
            row(name, case, "decoding, speedup", "x", ratios),
            row(name, case, "greedy answers equal", "share", [float(np.mean(same))]),
            row(name, case, "drafts accepted", "share", [accepted / max(drafted, 1)]),
            row(name, case, "tokens read again", "share", [again]),
            row(name, case, "answers without drafts, or that gave them up", "share", [float(np.mean(has_none))]),
        ]
    return rows


def summary_of(rows: Sequence[Row]) -> dict[str, float]:
    """1 if every greedy answer is that of plain decoding; the speed-up of drafts always, and while they pay; reading
    speed with drafts to come over that without, where it was measured."""
    values = {(one.contender, one.metric): one.p50 for one in rows}
    equal = [value for (_, metric), value in values.items() if metric == "greedy answers equal"]
    reading = {"speculative_reading_ratio": ratio} if (ratio := values.get((_ALWAYS, "reading, speedup"))) else {}
    return reading | {
        "speculative_greedy_equal": float(min(equal) == 1.0),
        "speculative_speedup": values[_ALWAYS, "decoding, speedup"],
        "speculative_speedup_with_fallback": values[_WHILE_IT_PAYS, "decoding, speedup"],
        "speculative_acceptance": values[_ALWAYS, "drafts accepted"],
    }


def _answer(name: str, session: Session, prompt: str) -> Answer:
    tokens = []
    for event in complete(session, prompt):
        if isinstance(event, AnswerToken):
            tokens.append(event.token_id)
    assert isinstance(event, AnswerFinished)
    return Answer(name, tuple(tokens), event.decode_seconds / max(len(tokens) - 1, 1), event)
