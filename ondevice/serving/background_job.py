"""Background work of a visitor beside the open documents: a comparison, or a shelf. One at a time, stopped any time."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from ondevice.session.engine import Session


@dataclass(slots=True, kw_only=True)
class BackgroundJob:
    """Work of a visitor that no single document owns.

    Attributes:
        session: the one at work.
        problem: why nothing could be done.
        stop: set to end it.
        idle: set while nothing runs.
    """

    session: Session | None = None
    problem: str = ""
    stop: threading.Event = field(default_factory=threading.Event)
    idle: threading.Event = field(default_factory=threading.Event)
    _claiming: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.idle.set()

    def claim(self) -> bool:
        """Begin; False where one is running. `release` follows."""
        with self._claiming:
            if not self.idle.is_set():
                return False
            self.idle.clear()
        self.stop.clear()
        return True

    def release(self) -> None:
        self.session = None
        self.idle.set()

    def request_stop(self) -> None:
        """Ask what runs to end, between two layers of the model."""
        self.stop.set()
        session = self.session
        if session is not None:
            session.stop()

    def halt(self, timeout: float = 15.0) -> bool:
        """Ask what runs to end and wait until it has."""
        self.request_stop()
        return self.idle.wait(timeout)
