"""Questions that wait while a document is read: reading takes one out between two of its steps."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from ondevice.config import GenerationConfig
from ondevice.decode.prompt import Turn


@dataclass(frozen=True, slots=True)
class Asked:
    """A question, how it is to be answered, and whether it may refer to those before it; `history` is what it may
    refer to instead, where that is known elsewhere."""

    question: str
    generation: GenerationConfig
    remembers: bool
    history: tuple[Turn, ...] = ()


@dataclass(slots=True)
class QuestionBox:
    """Takes one question at a time, and only while it is open.

    Attributes:
        is_open: whether a reading will take out what is put in.
    """

    is_open: bool = False
    _waiting: Asked | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def open(self) -> None:
        """Take questions from now on."""
        with self._lock:
            self.is_open = True

    def put(self, asked: Asked) -> bool:
        """Leave a question; False where the box is closed, or another one waits."""
        with self._lock:
            if not self.is_open or self._waiting is not None:
                return False
            self._waiting = asked
            return True

    @property
    def is_waiting(self) -> bool:
        """Whether there is a question in it."""
        return self._waiting is not None

    def take(self) -> Asked | None:
        """The question that waits."""
        with self._lock:
            asked, self._waiting = self._waiting, None
            return asked

    def close(self) -> None:
        """Take no more questions, and drop one that waits: its text is still in its field."""
        with self._lock:
            self.is_open = False
            self._waiting = None

    def close_if_empty(self) -> bool:
        """Close unless a question waits."""
        with self._lock:
            if self._waiting is None:
                self.is_open = False
            return not self.is_open
