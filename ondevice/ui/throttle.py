"""Throttle of the screen: at most five updates a second, whatever the engine's speed.

Each update wakes the server and the browser, and where both share two cores with the model, its threads wait for one
another meanwhile. The last state of an action always passes, so callers send it without asking.
"""

from __future__ import annotations

from collections import deque
from time import monotonic

MAX_UPDATES_PER_SECOND = 4  # the fifth is the last state, which is never held back


class Throttle:
    """Lets at most `MAX_UPDATES_PER_SECOND` updates through in any second."""

    def __init__(self) -> None:
        self._sent: deque[float] = deque(maxlen=MAX_UPDATES_PER_SECOND)

    def allows(self, *, urgent: bool = False) -> bool:
        """True if an update may go out now; if so it is counted.

        Updates are spread evenly. An urgent one (rare, and nothing may follow for seconds) may come right after
        another, but still counts against the limit.
        """
        now = monotonic()
        if len(self._sent) == MAX_UPDATES_PER_SECOND and now - self._sent[0] < 1.0:
            return False
        if self._sent and not urgent and now - self._sent[-1] < 1.0 / MAX_UPDATES_PER_SECOND:
            return False
        self._sent.append(now)
        return True
