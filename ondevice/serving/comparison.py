"""The state of a comparison: one column for each way of reading, and what it has come to so far."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from enum import StrEnum

from ondevice.config import EngineConfig
from ondevice.events import AnswerFinished
from ondevice.serving.contenders import Contender
from ondevice.session.engine import Session
from ondevice.telemetry.telemetry import Telemetry
from ondevice.words import Holdings


class Stage(StrEnum):
    """Phases of a column."""

    WAITING = "waiting"
    READING = "reading"
    ANSWERING = "answering"
    DONE = "done"
    FAILED = "failed"
    STOPPED = "stopped"


@dataclass(slots=True)
class Column:
    """One way of reading, its answer and its numbers.

    Attributes:
        contender: which way.
        config: its settings; None before its turn, or where they cannot work.
        stage: how far it has come.
        telemetry: the numbers of its session.
        finished: the complete answer.
        held: what its answer is written from; None before all is read.
        problem: why it failed.
        warning: what the reader of its answer must know.
    """

    contender: Contender
    config: EngineConfig | None = None
    stage: Stage = Stage.WAITING
    telemetry: Telemetry = field(default_factory=Telemetry)
    finished: AnswerFinished | None = None
    held: Holdings | None = None
    problem: str = ""
    warning: str = ""


@dataclass(slots=True)
class Comparison:
    """A comparison that a visitor has made, or is making.

    Attributes:
        document: name of the document that is read.
        unit: what its pages are called.
        num_tokens: its tokens.
        question: what is asked.
        columns: in the order in which they run.
        session: the one at work.
        problem: why nothing could be compared.
        stop: set to end it.
        idle: set while nothing runs.
    """

    document: str = ""
    unit: str = "page"
    num_tokens: int = 0
    question: str = ""
    columns: list[Column] = field(default_factory=list)
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
