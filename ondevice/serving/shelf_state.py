"""A visitor's question over several documents. State only."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from ondevice.serving.background_job import BackgroundJob


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
    """A passage that an answer looked at: tokens [start, stop) of the document `key`, named `name`."""

    key: str
    name: str
    unit: str
    page: int
    start: int
    stop: int
    text: str
    share: float


@dataclass(slots=True)
class Said:
    """The answer of one document, or of several side by side.

    Attributes:
        key: of the document, as in `Member`; "" for several.
        name: of the document.
        text: the answer so far.
        passages: that it looked at.
        account: what stands under it.
        problem: why there is no answer.
    """

    key: str = ""
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
    answers: list[Said] = field(default_factory=list)
    stage: Stage = Stage.WAITING
    problem: str = ""


@dataclass(slots=True)
class ShelfWork(BackgroundJob):
    """All questions to several documents, the newest last."""

    turns: list[ShelfTurn] = field(default_factory=list)
