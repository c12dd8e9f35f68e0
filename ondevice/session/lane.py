"""The one lane of an engine: each job that needs the model stands in line, and has it alone when the turn comes.

It knows neither the model nor who asks; the screen and the programming interface share it. Work that is short need not
wait for the end of what takes long.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

_POLL_SECONDS = 0.1


class Lane:
    """A line in which one has the turn at a time, first come, first served."""

    def __init__(self) -> None:
        self._line: deque[Ticket] = deque()
        self._moved = threading.Condition()

    @property
    def is_wanted(self) -> bool:
        """True if somebody waits for the turn of another one."""
        with self._moved:
            return len(self._line) > 1

    def ticket(self, is_short: Callable[[], bool] = lambda: False) -> Ticket:
        """A place at the end of the line; it is given back where its `with` block ends.

        Args:
            is_short: asked again and again: True while long work is to let it through, see `let_through`.
        """
        return Ticket(self, is_short)

    def let_through(self) -> bool:
        """Let short work come first, for the one that has the turn; True, once that is done, if there was any.

        What has become long since it was let through gives the turn back so.
        """
        with self._moved:
            holder, others = self._line[0], [one for one in self._line if one.is_waiting]
            interrupted = [one for one in others if one.is_interrupted]
            first = [] if holder.is_short() else interrupted or [one for one in others if one.is_short()]
            if not first:
                return False
            rest = [one for one in self._line if one not in first]
            self._line.clear()
            self._line.extend((*first, *rest))
            self._moved.notify_all()
            holder.is_interrupted = not interrupted
            holder.wait()
            holder.is_interrupted = False
            return True


class Ticket:
    """A place in the line, from the beginning of its `with` block to the end, in any thread.

    Attributes:
        is_short: as `Lane.ticket` has it.
        is_waiting: it waits for the turn at this moment; whoever has left to say so may not come back soon.
        is_interrupted: it had the turn, and waits for the end of what it has let through.
    """

    def __init__(self, lane: Lane, is_short: Callable[[], bool]) -> None:
        self._line, self._moved, self.is_short = lane._line, lane._moved, is_short
        self.is_waiting = self.is_interrupted = False

    def __enter__(self) -> Ticket:
        with self._moved:
            self._line.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        with self._moved:
            self._line.remove(self)
            self._moved.notify_all()

    @property
    def num_ahead(self) -> int:
        """Number of those that come first; 0: it is this one's turn."""
        with self._moved:
            return self._line.index(self)

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for the turn, for so long at most; returns whether it has come."""
        with self._moved:
            self.is_waiting = True
            try:
                return self._moved.wait_for(lambda: self._line[0] is self, seconds)
            finally:
                self.is_waiting = False

    def wait_unless(self, stop: threading.Event, seconds: float = float("inf")) -> bool:
        """As `wait`, but also over once `stop` is set, and False then: a job that is stopped does not want the turn."""
        end = time.monotonic() + seconds
        while not stop.is_set():
            if self.wait(max(min(end - time.monotonic(), _POLL_SECONDS), 0)):
                return not stop.is_set()
            if time.monotonic() >= end:
                break
        return False
