"""Folds events into the numbers that are shown: progress, speed, time by stage, the fill of the pot, the ledger.

Pure bookkeeping: it never reads a clock, so that the same events always give the same numbers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import get_args

import numpy as np
import numpy.typing as npt

from ondevice.events import (
    AnswerFinished,
    AnswerToken,
    BlocksRead,
    DocumentOpened,
    DocumentRead,
    Event,
    HeadCounts,
    HeadsMeasured,
    Ledger,
    PotDistilled,
    QuestionRead,
    Stage,
    TextTokenized,
    TokensChosen,
    TokensOffloaded,
    TokensRead,
)

STAGES: tuple[Stage, ...] = get_args(Stage)
# Reading; the heads of a model are measured once, whatever is read.
_INGEST: tuple[Stage, ...] = ("tokenize", "speculate", "forward", "novelty", "distill", "offload", "other")
_RECENT_PASSES = 8  # forward passes over which the current speed is taken


@dataclass(slots=True)
class Telemetry:
    """The state of a session by its events.

    Attributes:
        document: the document's card; None before one is opened.
        is_measuring: whether, before the first token, the needs of the model's heads are measured.
        num_read, num_total: document tokens read, and in all (None for an open stream).
        num_skipped: document tokens that a speculator left out so far.
        page: the last page touched.
        num_cached: used slots per head for each layer; `capacity` is the ceiling.
        stage_seconds: seconds by stage of `STAGES` since the beginning; of `offload` those that reading waited.
        offload_hidden_seconds: copying into host memory that went on beside the forward passes.
        retention: (layer, head) pairs that hold each document token, as of the last distillation.
        num_heads_total: the most that an entry of `retention` can be.
        num_cycles: distillations so far.
        ledger: the last full account.
        answer: text of the answer in progress, or of the last one.
        blocks_read: how much of the pot the answer's tokens have read so far; None where they read all of it.
        last_answer: the account of the last finished answer.
    """

    document: DocumentOpened | None = None
    is_measuring: bool = False
    num_read: int = 0
    num_total: int | None = None
    num_skipped: int = 0
    page: int = 0
    num_cached: tuple[int, ...] = ()
    capacity: int = 0
    stage_seconds: dict[Stage, float] = field(default_factory=lambda: dict.fromkeys(STAGES, 0.0))
    offload_hidden_seconds: float = 0.0
    retention: HeadCounts = field(default_factory=HeadCounts)
    novelty_tokens: npt.NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))
    num_heads_total: int = 0
    num_cycles: int = 0
    ledger: Ledger | None = None
    answer: str = ""
    blocks_read: BlocksRead | None = None
    last_answer: AnswerFinished | None = None
    _recent: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=_RECENT_PASSES))

    def apply(self, event: Event) -> None:
        """Take one event into account."""
        match event:
            case DocumentOpened():
                self.document = event
            case TextTokenized():
                self.stage_seconds["tokenize"] = event.seconds
            case TokensChosen():
                self.stage_seconds["speculate"] += event.seconds
                self._recent.append((0, event.seconds))
            case HeadsMeasured():
                self.is_measuring = True
            case TokensRead():
                self.is_measuring = False
                skipped = event.num_skipped - self.num_skipped
                self.num_skipped = event.num_skipped
                self.num_read, self.num_total, self.page = event.num_read, event.num_total, event.page
                self.num_cached, self.capacity = event.num_cached, event.capacity
                self.stage_seconds["forward"] += event.seconds
                self._recent.append((event.num_tokens + skipped, event.seconds))
            case PotDistilled():
                self.num_cycles, self.num_heads_total = event.cycle, event.num_heads_total
                self.num_cached = event.num_cached
                self.retention, self.novelty_tokens = event.retention, event.novelty_tokens
                self.stage_seconds["distill"] += event.seconds
                self.stage_seconds["novelty"] += event.novelty_seconds
                self._recent.append((0, event.seconds + event.novelty_seconds))
            case TokensOffloaded():
                self.stage_seconds["offload"] += event.waited_seconds
                self._recent.append((0, event.waited_seconds))
                self.offload_hidden_seconds += event.seconds - event.waited_seconds
            case DocumentRead():
                self.ledger, self.num_total = event.ledger, event.ledger.tokens_total
                self.retention, self.num_heads_total = event.retention, event.num_heads_total
                self._add(event.stage_seconds)
            case QuestionRead():
                self.answer, self.blocks_read = "", None
            case AnswerToken():
                self.answer += event.text
            case BlocksRead():
                self.blocks_read = event
            case AnswerFinished():
                self.answer, self.last_answer, self.ledger = event.text, event, event.ledger
                self._add(event.stage_seconds)

    def _add(self, seconds: Mapping[Stage, float]) -> None:
        for stage in seconds:
            self.stage_seconds[stage] += seconds[stage]

    @property
    def tokens_per_second(self) -> float:
        """Reading speed over the last passes, with distillations and waiting for copies; skipped tokens count."""
        seconds = sum(s for _, s in self._recent)
        return sum(n for n, _ in self._recent) / seconds if seconds else 0.0

    @property
    def has_steady_speed(self) -> bool:
        """True if more than the first pass was measured, which also warms up."""
        return sum(num > 0 for num, _ in self._recent) > 1

    @property
    def eta_seconds(self) -> float | None:
        """Seconds until the document is read at the current speed; None while that cannot be known."""
        if self.num_total is None or not self.tokens_per_second:
            return None
        return (self.num_total - self.num_passed) / self.tokens_per_second

    @property
    def num_passed(self) -> int:
        """Document tokens before the cursor: read, or skipped by a speculator."""
        return self.num_read + self.num_skipped

    @property
    def ingest_seconds(self) -> float:
        """Seconds spent on reading, waiting and what lies between two stages counted."""
        return sum(self.stage_seconds[stage] for stage in _INGEST)
