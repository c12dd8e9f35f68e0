"""The clock of reading and answering: every second that passes belongs to exactly one stage."""

from __future__ import annotations

import time
from collections.abc import Callable

from ondevice.events import Stage


class StageClock:
    """Books the time that passes, stage by stage, so that the stages add up to the wall clock.

    A GPU still computes when a call has returned, so the clock waits for it where a stage ends. Stages end with a pass,
    a distillation or a look, never between two layers or two tokens: that would hold the GPU up.

    Args:
        wait: returns once the device has done what it was given.

    Attributes:
        seconds: booked so far, by stage.
    """

    def __init__(self, wait: Callable[[], None]) -> None:
        self._wait = wait
        self.seconds: dict[Stage, float] = {}
        self.restart()

    def restart(self) -> None:
        """Book nothing of what has passed since the last booking."""
        self._last = time.perf_counter()

    def book(self, stage: Stage, *, apart: float = 0.0) -> float:
        """Give a stage the seconds since the last booking, but for those `apart` that something else reports; these."""
        self._wait()
        now = time.perf_counter()
        spent, self._last = now - self._last - apart, now
        self.seconds[stage] = self.seconds.get(stage, 0.0) + spent
        return spent

    @property
    def total(self) -> float:
        """All seconds booked, and those that have passed since."""
        return sum(self.seconds.values()) + time.perf_counter() - self._last
