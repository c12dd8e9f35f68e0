"""The state of a comparison: one column for each way of reading, and what it has come to so far."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from ondevice.config import EngineConfig
from ondevice.events import AnswerFinished
from ondevice.serving.background_job import BackgroundJob
from ondevice.serving.contenders import Contender
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
class Comparison(BackgroundJob):
    """A comparison that a visitor has made, or is making.

    Attributes:
        document: name of the document that is read.
        unit: what its pages are called.
        num_tokens: its tokens.
        question: what is asked.
        columns: in the order in which they run.
    """

    document: str = ""
    unit: str = "page"
    num_tokens: int = 0
    question: str = ""
    columns: list[Column] = field(default_factory=list)
