"""Verbatim recall: how well a document can be continued, anywhere in it, once all of it has been read.

Spans lie evenly over the document. After reading, the first half of each is the cue, and the score is the mean
negative log-likelihood of the other half. A small model shows it smoothly, where it gets questions wrong or right.
Beside the method stand no document at all, and a full KV cache of the document or of a window around the span.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from ondevice.config import EngineConfig, GenerationConfig
from ondevice.decode.answer import new_attention
from ondevice.decode.host_recall import HostRecall
from ondevice.decode.termination import RunTimeTermination
from ondevice.documents import Document
from ondevice.documents.tokens import DocumentTokens
from ondevice.errors import ConfigError
from ondevice.events import Event
from ondevice.model.decoder import Decoder
from ondevice.model.tokenizer import Tokenizer
from ondevice.pot.memory_pot import MemoryPot
from ondevice.pot.undo import UndoLog
from ondevice.session.engine import Engine
from ondevice.session.session import Session
from ondevice_bench.quality.measurement import Measurement
from ondevice_bench.results.names import contender_name
from ondevice_bench.results.result import Row, row

SPAN_TOKENS = 32
CUE_TOKENS = 16
WINDOW_TOKENS = 6000  # of a full KV cache: within the window that the smallest models were trained on
_STEP = 768
_NONE = "no document"


@dataclass(frozen=True, slots=True)
class Recall:
    """Losses of one span, in nats per token: at document token `start`, `depth` of the way through.

    `num_tokens` of the document were read.
    """

    start: int
    depth: float
    none: float
    full: float
    method: float
    num_tokens: int


def recall_config(config: EngineConfig) -> EngineConfig:
    """The settings with which recall is measured: those given, but without a chat template."""
    return replace(config, generation=GenerationConfig(max_new_tokens=1, chat=False, num_sources=0))


def run_recall(engine: Engine, document: Document, num_spans: int) -> Iterator[Event | Recall]:
    """Events while the document is read, then a `Recall` for each span.

    Args:
        engine: with settings from `recall_config`.

    Raises:
        ConfigError: the document is too short for that many spans, or a stream.
    """
    if engine.config.pot.reserve < SPAN_TOKENS:
        raise ConfigError(
            f"--reserve is {engine.config.pot.reserve}, and a span has {SPAN_TOKENS} tokens", fix="Raise --reserve."
        )
    session = engine.session()
    yield from session.open(document)
    tokens = session.context.tokens
    if not tokens.keeps_text or tokens.num_tokens < num_spans * SPAN_TOKENS:
        raise ConfigError(
            f"The text has {tokens.num_tokens:,} tokens, too few for {num_spans} spans of {SPAN_TOKENS}",
            where=document.name,
            fix="Name a longer file, or lower --spans.",
        )
    yield from session.resume()
    yield from recall_spans(session, num_spans)


def recall_spans(
    session: Session, num_spans: int, known: dict[int, tuple[float, float]] | None = None
) -> Iterator[Recall]:
    """Recall of its document by a session, beside a full cache and no document.

    Args:
        known: losses of the other two by the first token of a span, which are the same for every pot: what is there is
            not measured again, and the others are put there.
    """
    num_read, tokens = session.context.num_read, session.context.tokens
    known = {} if known is None else known
    others = _Others(session)
    for start in span_starts(tokens.num_tokens, num_spans):
        if start not in known:
            known[start] = others.losses(start)
        none, full = known[start]
        yield Recall(start, start / tokens.num_tokens, none, full, pot_loss(session, start), num_read)


class _Others:
    """No document, and a full cache of it or of a window around a span; each is filled when it is needed."""

    def __init__(self, session: Session) -> None:
        self._tokens, self._decoder = session.context.tokens, session.context.decoder
        self._prefix = session.context.chat.prefix
        self._nothing: MemoryPot | None = None
        self._full: tuple[tuple[int, int], MemoryPot] | None = None

    def losses(self, start: int) -> tuple[float, float]:
        """Nats per token of the span at token `start`: without a document, and with a full cache."""
        decoder, window = self._decoder, window_around(start, self._tokens.num_tokens)
        if self._nothing is None:
            self._nothing = self._filled(self._prefix)
        if self._full is None or self._full[0] != window:
            self._full = window, self._filled([*self._prefix, *self._tokens.ids(*window).tolist()])
        ids = decoder.ids(self._tokens.ids(start, start + SPAN_TOKENS))
        none, full = (_loss(decoder, pot, ids, UndoLog(pot)) for pot in (self._nothing, self._full[1]))
        return none, full

    def _filled(self, ids: Sequence[int]) -> MemoryPot:
        """A pot that has read tokens and has room for a span."""
        pot = self._decoder.new_pot(len(ids) + SPAN_TOKENS)
        for start in range(0, len(ids), _STEP):
            self._decoder.forward(self._decoder.ids(ids[start : start + _STEP]), pot)
        return pot


def pot_loss(session: Session, start: int, attention: RunTimeTermination | None = None) -> float:
    """Nats per token with which a session that has read its document continues the span at token `start`.

    With `attention`, or where the settings end decode attention early, the tokens come one by one, as in an answer.
    """
    context = session.context
    ids = context.decoder.ids(context.tokens.ids(start, start + SPAN_TOKENS))
    undo = UndoLog(context.pot)
    if context.has_evicted_outside:
        recall = HostRecall(context, SPAN_TOKENS)
        recall.begin(ids[:, :CUE_TOKENS], ids[0, :CUE_TOKENS].numpy(force=True))
        recall.recall(undo)
    return _loss(context.decoder, context.pot, ids, undo, attention or new_attention(context))


def rows_of(spans: Sequence[Recall], config: EngineConfig) -> tuple[Row, ...]:
    """One row for each span and contender."""
    rows = []
    for span in spans:
        case = {"tokens": span.num_tokens, "depth": round(span.depth, 3)}
        for name, loss in ((contender_name(config), span.method), ("full KV", span.full), (_NONE, span.none)):
            rows.append(row(name, case, "loss", "nats", [loss]))
    return tuple(rows)


def summary_of(spans: Sequence[Recall]) -> dict[str, float]:
    """Mean losses, and how much of what a full cache knows the method does."""
    none, full, method = (float(np.mean([getattr(s, name) for s in spans])) for name in ("none", "full", "method"))
    return {
        "nll_none": none,
        "nll_full": full,
        "nll_method": method,
        "recovered_share": (none - method) / (none - full) if none != full else 0.0,
    }


def span_starts(num_tokens: int, num_spans: int) -> list[int]:
    """First tokens of spans that lie in the middle of equal parts of the document."""
    return [round((i + 0.5) * num_tokens / num_spans) - SPAN_TOKENS // 2 for i in range(num_spans)]


def cues(tokens: DocumentTokens, tokenizer: Tokenizer, num_spans: int) -> Iterator[tuple[int, str]]:
    """The first token of every span, and the words of its cue."""
    for start in span_starts(tokens.num_tokens, num_spans):
        yield start, tokenizer.decode(tokens.ids(start, start + CUE_TOKENS).tolist())


def window_around(start: int, num_tokens: int) -> tuple[int, int]:
    """Tokens [first, stop) around a span that a full cache reads: the whole document where it is short enough."""
    first = min(max(start + SPAN_TOKENS // 2 - WINDOW_TOKENS // 2, 0), max(num_tokens - WINDOW_TOKENS, 0))
    return first, min(first + WINDOW_TOKENS, num_tokens)


def _loss(
    decoder: Decoder, pot: MemoryPot, ids: Tensor, undo: UndoLog, attention: RunTimeTermination | None = None
) -> float:
    """Mean cross-entropy in nats of the tokens after the cue; `undo` then rewinds the pot.

    With `attention` the tokens after the cue come one by one.
    """
    parts = [ids] if attention is None else [ids[:, :CUE_TOKENS], *ids[:, CUE_TOKENS:].split(1, dim=1)]
    hidden = torch.cat([decoder.forward(part, pot, attention=attention).hidden_states for part in parts], dim=1)
    loss = float(decoder.head.token_loss(hidden[:, CUE_TOKENS - 1 : -1], ids[:, CUE_TOKENS:]).mean())
    undo.rewind()
    return loss


def _config(given: Callable[..., EngineConfig], _: object) -> EngineConfig:
    config = given()
    if config.pot.method.keeps_all:
        raise ConfigError("--policy full is one of the contenders already", fix="Choose a pot.")
    return recall_config(config)


MEASUREMENT = Measurement[Recall](
    lambda setup, options: run_recall(setup.engine, setup.beginning(options.text, options.tokens), options.spans),
    rows_of,
    summary_of,
    config=_config,
    line=lambda span: (
        f"token {span.start:,}: no document {span.none:.2f}, full KV {span.full:.2f}, pot {span.method:.2f}"
    ),
)
