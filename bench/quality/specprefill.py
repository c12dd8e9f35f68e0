"""Loss by SpecPrefill: passkey and recall at several shares of the prompt, in the paper's three variants.

As in the paper the prompt is read whole, with a full cache of what is chosen, and its end is the question: the key's,
or the cue of a span. Every prompt is scored once; what is chosen from the scores then goes through the engine as
always. Beside it stand truncation, which keeps as many tokens, and the whole prompt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from torch import Tensor

from ondevice.config import EngineConfig, GenerationConfig, SpecConfig
from ondevice.documents import Document
from ondevice.errors import ConfigError
from ondevice.events import AnswerFinished
from ondevice.prefill.selection import Selection
from ondevice.session.engine import Engine
from ondevice.session.session import Session
from ondevice_bench.quality.completion import complete
from ondevice_bench.quality.measurement import Measurement, Setup
from ondevice_bench.quality.passkey import QUESTION, Case, make_passkey, passkey_document, plan
from ondevice_bench.quality.recall import cues, pot_loss, recall_config
from ondevice_bench.results.names import spec_variant
from ondevice_bench.results.result import Row, row

FULL, TRUNCATION = "full KV", "truncation"
LOOK_AHEAD = 8  # of the paper's variant "full LAH"
_NEW_TOKENS = 10  # of an answer to the passkey question


@dataclass(frozen=True, slots=True)
class Point:
    """One prompt read in one way: `value` is 1 for a right answer, or the loss in nats per token of a span.

    `keep` is the share of the prompt that was read, in per cent.
    """

    contender: str
    task: str
    keep: int
    value: float


def variants(spec: SpecConfig) -> tuple[SpecConfig, ...]:
    """Raw scores, full without look-ahead, full with it: that of `spec`, or the paper's (section 4.3)."""
    return (
        replace(spec, num_lookahead=0, pool_size=1, chunk_size=1),
        replace(spec, num_lookahead=0),
        replace(spec, num_lookahead=spec.num_lookahead or LOOK_AHEAD),
    )


def specprefill_config(config: EngineConfig, question: str) -> EngineConfig:
    """The settings with which a prompt that ends with `question` is read whole: no pot, no template, greedy."""
    return replace(
        config,
        pot=replace(config.pot, policy="full", catalyst="text", catalyst_text=question),
        generation=GenerationConfig(max_new_tokens=_NEW_TOKENS, chat=False, num_sources=0),
    )


def prompt_session(engine: Engine, spec: SpecConfig, question: str, document: Document) -> Session:
    """A session in which a document is open that is to be read whole for `question`; nothing is read yet."""
    session = engine.session(specprefill_config(replace(engine.config, spec=spec), question))
    for _ in session.open(document):
        pass
    return session


def score(session: Session) -> Tensor:
    """The scores of a whole prompt, from the speculator of a session that `prompt_session` made."""
    selection, tokens = cast(Selection, session.reader.selection), session.context.tokens
    return selection.speculator.read(session.context.decoder.ids(tokens.ids(0, tokens.num_tokens)))


def run_passkeys(engine: Engine, cases: Sequence[Case], keeps: Sequence[int]) -> Iterator[Point]:
    """Every case at every share, in every variant and truncated."""

    def count(text: str) -> int:
        return len(engine.loaded.tokenizer.encode(text)[0])

    for case in cases:
        passkey = make_passkey(case, engine.config.seed, count)
        document = passkey_document(passkey)
        for contender, keep, session in (
            *_plain(engine, document, keeps),
            *_readings(engine, document, QUESTION, keeps),
        ):
            *_, answer = complete(session, QUESTION)
            assert isinstance(answer, AnswerFinished)
            yield Point(contender, "passkey", keep, float(passkey.is_right(answer.text)))


def run_recalls(engine: Engine, document: Document, num_spans: int, keeps: Sequence[int]) -> Iterator[Point]:
    """Every span of a document, its cue the question, at every share, in every variant and truncated."""
    without = list(_plain(engine, document, keeps))  # what they read is the same for every span
    tokens = without[0][2].context.tokens
    for start, cue in cues(tokens, engine.loaded.tokenizer, num_spans):
        for contender, keep, session in (*without, *_readings(engine, document, cue, keeps)):
            yield Point(contender, "recall", keep, pot_loss(session, start))


def rows_of(points: Sequence[Point]) -> tuple[Row, ...]:
    """A row for each contender, task and share."""
    groups: dict[tuple[str, str, int], list[float]] = {}
    for point in points:
        groups.setdefault((point.task, point.contender, point.keep), []).append(point.value)
    rows = []
    for (task, contender, keep), values in groups.items():
        metric, unit = ("accuracy", "share") if task == "passkey" else ("loss", "nats")
        # The mean, not the median: a share of right answers has none.
        mean = sum(values) / len(values)
        rows.append(replace(row(contender, {"task": task, "keep %": keep}, metric, unit, values), p50=mean))
    return tuple(rows)


def summary_of(rows: Sequence[Row]) -> dict[str, float]:
    """Accuracy and loss at every share: `accuracy_keep_30` of the full variant, `accuracy_lah_keep_30` with look-ahead,
    `accuracy_raw_keep_30`, `accuracy_truncation_keep_30`, and `accuracy_full_kv`; losses likewise."""
    names = {"accuracy": "accuracy", "loss": "recall_loss"}
    summary = {}
    for one in rows:
        name, keep = names[one.metric], one.case["keep %"]
        variant = one.contender.removeprefix("SpecPrefill ")
        if one.contender == FULL:
            summary[f"{name}_full_kv"] = one.p50
        else:
            kind = "" if variant == "full" else "lah_" if variant.startswith("full LAH") else f"{variant}_"
            summary[f"{name}_{kind}keep_{keep}"] = one.p50
    return summary


def _plain(engine: Engine, document: Document, keeps: Sequence[int]) -> Iterator[tuple[str, int, Session]]:
    """Sessions without a speculator: the contender's name, the share in per cent, the session."""
    config = specprefill_config(replace(engine.config, spec=SpecConfig()), QUESTION)
    session = _read(engine.session(config), document)
    num_tokens = session.context.tokens.num_tokens
    yield FULL, 100, session
    for keep in keeps:
        yield TRUNCATION, keep, _truncated(engine.session(config), document, num_tokens * keep // 100)


def _readings(
    engine: Engine, document: Document, question: str, keeps: Sequence[int]
) -> Iterator[tuple[str, int, Session]]:
    """Sessions with a speculator that knows the question, as in `_plain`."""
    # What answers do with a speculator needs its pot, and there is none: every prompt is scored once.
    spec = replace(engine.config.spec, keep=0.5)
    config = specprefill_config(replace(engine.config, spec=spec), question)
    scores = score(prompt_session(engine, variants(spec)[-1], question, document))
    for keep in keeps:
        for variant in variants(spec):
            session = engine.session(replace(config, spec=replace(variant, keep=keep / 100)))
            session.context.speculator = None  # its scores are known: it needs no pot
            for _ in session.open(document):
                pass
            selection, end = cast(Selection, session.reader.selection), session.context.tokens.num_tokens
            rows = scores[: 1 + variant.num_lookahead]
            selection.choose_from(rows, 0, end, session.context.config.spec, is_at_end=True)
            for _ in session.resume():
                pass
            yield f"SpecPrefill {spec_variant(variant)}", keep, session


def _truncated(session: Session, document: Document, num_tokens: int) -> Session:
    """A session that has read so many tokens of a document, the first half of them and the last."""
    for _ in session.open(document):
        pass
    context, half = session.context, num_tokens // 2
    total = context.tokens.num_tokens
    context.spans, context.num_skipped = [(0, half), (total - half, total)], total - 2 * half
    for _ in session.resume():
        pass
    return session


def _read(session: Session, document: Document) -> Session:
    for _ in session.read(document):
        pass
    return session


def shares_config(given: Callable[..., EngineConfig], options: Any) -> EngineConfig:
    """Those of `recall_config`, if all of --keeps are shares; as a `Measurement.config`."""
    if not all(0 < keep < 100 for keep in options.keeps):
        keeps = ",".join(map(str, options.keeps))
        raise ConfigError(f"--keeps is {keeps!r}", fix="Give shares between 1 and 99 per cent.")
    return recall_config(given())


def _measure(setup: Setup, options: Any) -> Iterator[Point]:
    document = setup.beginning(options.text, options.tokens)
    yield from run_passkeys(setup.engine, plan((options.length,), options.depths, options.trials), options.keeps)
    yield from run_recalls(setup.engine, document, options.spans, options.keeps)


MEASUREMENT = Measurement[Point](
    _measure,
    lambda points, _: rows_of(points),
    lambda points: summary_of(rows_of(points)),
    config=shares_config,
    line=lambda point: f"{point.contender}, {point.keep} %: {point.task} {point.value:.2f}",
)
