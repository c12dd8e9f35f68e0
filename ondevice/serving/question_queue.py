"""Questions that wait: for a document, for its reading, for the next step of that, or for the answer before."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from ondevice.config import GenerationConfig
from ondevice.decode.prompt import Turn
from ondevice.serving.conversations import Conversation
from ondevice.serving.exchanges import Exchange


@dataclass(frozen=True, slots=True)
class Asked:
    """A question, how it is to be answered, and whether it may refer to those before it.

    Attributes:
        conversation: the one in which it was asked; None: the one that is shown.
        history: what it may refer to instead, if that is known elsewhere.
        is_early: it was asked before anything was read.
        instead_of: the answer from before all was read, which this one confirms or replaces; None: there is none.
        at: the exchange whose place it takes, and that of all that came after; None: it comes last.
        keeps_others: it takes the place of that one alone, and only once it is complete: nobody has asked for it.
        begun: tokens of the answer that are there already; it goes on after them.
        attempt: at this answer; each draws other tokens where the temperature is above 0.
    """

    question: str
    generation: GenerationConfig
    remembers: bool
    conversation: Conversation | None = None
    history: tuple[Turn, ...] = ()
    is_early: bool = False
    instead_of: Exchange | None = None
    at: int | None = None
    keeps_others: bool = False
    begun: tuple[int, ...] = ()
    attempt: int = 0

    def __post_init__(self) -> None:  # half of an emoji, which a page may send, can be written nowhere
        object.__setattr__(self, "question", self.question.encode("utf-8", "replace").decode())


@dataclass(slots=True)
class QuestionQueue:
    """A queue for one question.

    Attributes:
        waiting: the question that waits.
        is_open: whether a reading takes the question out between two of its steps.
        under_way: the question that is being answered; "": none. The same one again is a second click, and left out.
        early: questions that the last reading took out before its end; they are answered again then.
    """

    is_open: bool = False
    under_way: str = ""
    waiting: Asked | None = None
    early: list[Asked] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def is_busy(self) -> bool:
        """True if a question waits, or is being answered."""
        return bool(self.under_way) or self.waiting is not None

    def open(self) -> None:
        """A reading begins, which takes questions out."""
        self.is_open, self.early = True, []

    def put(self, asked: Asked) -> bool:
        """Leave a question; False where another one waits, or the same one is being answered."""
        with self._lock:
            if self.waiting is not None or asked.question == self.under_way:
                return False
            self.waiting = asked
            return True

    def take(self) -> Asked | None:
        """Take out the question that waits."""
        with self._lock:
            asked, self.waiting = self.waiting, None
            return asked

    def close(self) -> None:
        """The reading has ended; a question that waits stays for whoever comes next."""
        self.is_open = False
