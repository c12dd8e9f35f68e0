"""A visitor's questions over several documents: what was said, and what runs. One at a time, stopped any time."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from enum import StrEnum

from ondevice.session.engine import Session


class Stage(StrEnum):
    """Phases of one question."""

    WAITING = "waiting"
    OPENING = "opening"
    ANSWERING = "answering"
    DONE = "done"
    STOPPED = "stopped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Passage:
    """A passage that an answer looked at: tokens [start, stop) of the document with this id, named `name`."""

    document: str
    name: str
    unit: str
    page: int
    start: int
    stop: int
    text: str
    share: float


@dataclass(slots=True)
class ShelfAnswered:
    """The answer of one document, or of several side by side; as an event it is complete.

    Attributes:
        document: its id; "" for several.
        name: of the document.
        text: the answer so far.
        passages: that it looked at.
        account: what stands under it.
        problem: why there is no answer.
    """

    document: str = ""
    name: str = ""
    text: str = ""
    passages: tuple[Passage, ...] = ()
    account: str = ""
    problem: str = ""


@dataclass(slots=True)
class ShelfTurn:
    """One question.

    Attributes:
        question: as it was asked.
        is_each: every document answers by itself; else together.
        num_asked: documents to choose from.
        note: which of them lie side by side, and how much of them.
        answers: one of all, or one of each document.
        stage: how far it has come.
        problem: why it failed.
    """

    question: str
    is_each: bool
    num_asked: int
    note: str = ""
    answers: list[ShelfAnswered] = field(default_factory=list)
    stage: Stage = Stage.WAITING
    problem: str = ""


@dataclass(slots=True)
class ShelfWork:
    """All questions to several documents, the newest last.

    Attributes:
        session: the one at work.
        problem: why nothing could be done.
        stop: set to end it.
        idle: set while nothing runs.
    """

    turns: list[ShelfTurn] = field(default_factory=list)
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
