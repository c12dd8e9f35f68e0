"""Folds events into the numbers that are shown: progress, speed, time by stage, the fill of the pot.

Pure bookkeeping: it never reads a clock, so that the same events always give the same numbers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import get_args

from ondevice import events
from ondevice.events import Event, Stage

STAGES: tuple[Stage, ...] = get_args(Stage)
# Reading; the heads of a model are measured once, whatever is read.
_INGEST: tuple[Stage, ...] = ("tokenize", "speculate", "forward", "novelty", "distill", "offload", "other")
_RECENT_PASSES = 8  # forward passes over which the current speed is taken


@dataclass(slots=True)
class Pace:
    """The pace of reading, which slows down while the pot fills: every token attends to all that it holds.

    It is seconds of a token, and `slowing` of them more for each slot in use, by least squares over forward passes.
    """

    _tokens: float = 0.0
    _seconds: float = 0.0
    _slots: float = 0.0  # sums over tokens of the slots in use, of their squares, and of seconds times slots
    _squares: float = 0.0
    _products: float = 0.0

    def note(self, num_tokens: int, seconds: float, num_cached: int) -> None:
        """Take in one pass, after which `num_cached` slots of a head were in use."""
        slots = max(num_cached - num_tokens / 2, 0.0)
        self._tokens += num_tokens
        self._seconds += seconds
        self._slots += num_tokens * slots
        self._squares += num_tokens * slots**2
        self._products += seconds * slots

    @property
    def slowing(self) -> float:
        """Seconds more of a token for each slot in use; 0.0 if that is not known."""
        spread = self._tokens * self._squares - self._slots**2
        return max((self._tokens * self._products - self._slots * self._seconds) / spread, 0.0) if spread > 0 else 0.0

    def seconds(self, num_tokens: int, num_cached: int) -> float:
        """Seconds of the next tokens, each of which takes a slot beside the `num_cached` in use."""
        mean = (self._seconds - self.slowing * self._slots) / self._tokens if self._tokens else 0.0
        return num_tokens * (max(mean, 0.0) + self.slowing * (num_cached + num_tokens / 2))


@dataclass(slots=True)
class Telemetry:
    """The state of a session by its events.

    Attributes:
        is_measuring: whether, before the first token, the needs of the model's heads are measured.
        num_read, num_total: document tokens read, and in all (None for an open stream).
        num_skipped: document tokens that a speculator left out so far.
        page: the last page touched.
        num_cached: used slots per head for each layer.
        stage_seconds: seconds by stage of `STAGES` since the beginning; of `offload` those that reading waited.
        offload_hidden_seconds: copying into host memory that went on beside the forward passes.
        num_cycles: distillations so far.
        pace: of the forward passes, while the pot fills.
    """

    is_measuring: bool = False
    num_read: int = 0
    num_total: int | None = None
    num_skipped: int = 0
    page: int = 0
    num_cached: tuple[int, ...] = ()
    stage_seconds: dict[Stage, float] = field(default_factory=lambda: dict.fromkeys(STAGES, 0.0))
    offload_hidden_seconds: float = 0.0
    num_cycles: int = 0
    pace: Pace = field(default_factory=Pace)
    _capacity: int = 0
    _recent: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=_RECENT_PASSES))

    def apply(self, event: Event) -> None:
        """Take one event into account."""
        match event:
            case events.TextTokenized():
                self.stage_seconds["tokenize"] = event.seconds
            case events.TokensChosen():
                self.stage_seconds["speculate"] += event.seconds
                self._recent.append((0, event.seconds))
            case events.HeadsMeasured():
                self.is_measuring = True
            case events.TokensRead():
                self.is_measuring = False
                skipped = event.num_skipped - self.num_skipped
                self.num_skipped = event.num_skipped
                self.num_read, self.num_total, self.page = event.num_read, event.num_total, event.page
                self.num_cached = event.num_cached
                self.stage_seconds["forward"] += event.seconds
                self._recent.append((event.num_tokens + skipped, event.seconds))
                self._capacity = event.capacity
                self.pace.note(event.num_tokens, event.seconds, max(event.num_cached, default=0))
            case events.PotDistilled():
                self.num_cycles, self.num_cached = event.cycle, event.num_cached
                self.stage_seconds["distill"] += event.seconds
                self.stage_seconds["novelty"] += event.novelty_seconds
                self._recent.append((0, event.seconds + event.novelty_seconds))
            case events.TokensOffloaded():
                self.stage_seconds["offload"] += event.waited_seconds
                self._recent.append((0, event.waited_seconds))
                self.offload_hidden_seconds += event.seconds - event.waited_seconds
            case events.DocumentRead():
                self.num_total = event.ledger.tokens_total
                self._add(event.stage_seconds)
            case events.AnswerFinished():
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
        """Seconds until the document is read: slower and slower while the pot fills, then at the current speed.

        None while that cannot be known.
        """
        if self.num_total is None or not self.tokens_per_second:
            return None
        left, held = self.num_total - self.num_passed, max(self.num_cached, default=0)
        filling = 0 if self.num_cycles or self.num_skipped else min(left, max(self._capacity - held, 0))
        return self.pace.seconds(filling, held) + (left - filling) / self.tokens_per_second

    @property
    def num_passed(self) -> int:
        """Document tokens before the cursor: read, or skipped by a speculator."""
        return self.num_read + self.num_skipped

    @property
    def ingest_seconds(self) -> float:
        """Seconds spent on reading, waiting and what lies between two stages counted."""
        return sum(self.stage_seconds[stage] for stage in _INGEST)
