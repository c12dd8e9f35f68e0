"""Recall of a speculator: how much of the place that answers a question is among the tokens that it lets through.

Prompts are read by the speculator alone, so that many settings can be compared: which layers score, how far it looks
ahead, how scores are smoothed and chosen together. The questions are
those of `specprefill`: the passkey's, and the cue of a span of a text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ondevice.config import SpecConfig
from ondevice.documents import Document
from ondevice.session.engine import Engine
from ondevice.speculator.choose import choose, importance
from ondevice_bench.quality.measurement import Measurement, Setup
from ondevice_bench.quality.passkey import QUESTION, Case, make_passkey, passkey_document, plan, secret
from ondevice_bench.quality.recall import CUE_TOKENS, SPAN_TOKENS, cues
from ondevice_bench.quality.specprefill import prompt_session, score, shares_config
from ondevice_bench.results.result import Row, row

BASE = "as usual"
_DEPTHS = (0.1, 0.3, 0.5, 0.7, 0.9)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A document, what is asked of it, and the document tokens [start, stop) that answer it."""

    task: str
    document: Document
    question: str
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Find:
    """One prompt under one setting: the share of the wanted tokens that go on, and of all tokens.

    `keep` is the share asked for in per cent.
    """

    setting: str
    task: str
    keep: str
    found: float
    read: float


def wanted_passkeys(engine: Engine, cases: Sequence[Case]) -> list[Wanted]:
    """The sentences that give the key."""
    encode, wanted = engine.loaded.tokenizer.encode, []
    for case in cases:
        passkey = make_passkey(case, engine.config.seed, lambda text: len(encode(text)[0]))
        sentence = secret(passkey.key)
        first = passkey.document.index(sentence)
        spans = encode(passkey.document)[1]
        inside = np.flatnonzero((spans[:, 1] > first) & (spans[:, 0] < first + len(sentence)))
        wanted.append(Wanted("passkey", passkey_document(passkey), QUESTION, int(inside[0]), int(inside[-1]) + 1))
    return wanted


def wanted_spans(engine: Engine, document: Document, num_spans: int) -> list[Wanted]:
    """Spans that lie evenly over a document, to be found by their cues."""
    tokens = prompt_session(engine, SpecConfig(), QUESTION, document).context.tokens
    wanted = []
    for start, cue in cues(tokens, engine.loaded.tokenizer, num_spans):
        wanted.append(Wanted("recall", document, cue, start + CUE_TOKENS, start + SPAN_TOKENS))
    return wanted


def settings(spec: SpecConfig, layers: Sequence[int], look_aheads: Sequence[int]) -> dict[str, SpecConfig]:
    """The settings of `spec`, and others that differ from them in one thing each."""
    return {
        BASE: spec,
        **{f"{number} layers": replace(spec, layers=number) for number in layers},
        **{f"look-ahead {steps}": replace(spec, num_lookahead=steps) for steps in look_aheads},
        "raw": replace(spec, pool_size=1, chunk_size=1),
        "pool 1, chunks of 16": replace(spec, pool_size=1, chunk_size=16),
        "pool 13, chunks of 32": replace(spec, pool_size=13, chunk_size=32),
    }


def run_speculator(
    engine: Engine, wanted: Sequence[Wanted], compared: dict[str, SpecConfig], keeps: Sequence[int]
) -> Iterator[Find]:
    """Every prompt under every setting at every share, in per cent."""
    scorings: dict[tuple[str, int], dict[str, SpecConfig]] = {}
    for name, spec in compared.items():
        scorings.setdefault((spec.model, spec.layers), {})[name] = spec
    for one in wanted:
        for alike in scorings.values():
            # Scores of fewer look-ahead tokens are the first of more.
            furthest = max(alike.values(), key=lambda spec: spec.num_lookahead)
            maxima = score(prompt_session(engine, replace(furthest, keep=0.5), one.question, one.document))
            for name, spec in alike.items():
                scores = importance(maxima[: 1 + spec.num_lookahead])
                for keep in keeps:
                    chosen = choose(scores, replace(spec, keep=keep / 100), is_first=True)
                    found = ((chosen >= one.start) & (chosen < one.stop)).sum().item() / (one.stop - one.start)
                    yield Find(name, one.task, str(keep), found, chosen.shape[0] / scores.shape[0])


def rows_of(finds: Sequence[Find]) -> tuple[Row, ...]:
    """Two rows for each setting, task and share: what was found, and what was read for it."""
    groups: dict[tuple[str, str, str], list[Find]] = {}
    for find in finds:
        groups.setdefault((find.setting, find.task, find.keep), []).append(find)
    rows = []
    for (setting, task, keep), group in groups.items():
        for metric, values in (("found", [f.found for f in group]), ("read", [f.read for f in group])):
            mean = sum(values) / len(values)  # of shares of a few tokens; a median would be 0 or 1
            rows.append(replace(row(setting, {"task": task, "keep %": keep}, metric, "share", values), p50=mean))
    return tuple(rows)


def summary_of(rows: Sequence[Row]) -> dict[str, float]:
    """Under the usual settings: `found_passkey_keep_10`, ..."""
    return {
        f"found_{one.case['task']}_keep_{one.case['keep %']}": one.p50
        for one in rows
        if one.contender == BASE and one.metric == "found"
    }


def _measure(setup: Setup, options: Any) -> Iterator[Find]:
    engine, document = setup.engine, setup.beginning(options.text, options.tokens)
    cases = plan((options.length,), _DEPTHS, options.trials)
    compared = settings(engine.config.spec, options.layer_counts, options.look_aheads)
    wanted = wanted_passkeys(engine, cases) + wanted_spans(engine, document, options.spans)
    yield from run_speculator(engine, wanted, compared, options.keeps)


MEASUREMENT = Measurement[Find](
    _measure,
    lambda finds, _: rows_of(finds),
    lambda finds: summary_of(rows_of(finds)),
    config=shares_config,
    line=lambda find: f"{find.setting}, {find.keep} %: {find.task} {find.found:.2f}",
)
