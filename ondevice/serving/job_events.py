"""Events of a job beside those of the engine: its turn in line, and its end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ondevice.events import Event
from ondevice.library.library import Entry
from ondevice.scan.scan import ChunkScanned
from ondevice.serving.workspace import Phase


@dataclass(frozen=True, slots=True)
class Waiting:
    """The job is in line for the model; `num_ahead` come first. It comes once a second."""

    num_ahead: int


@dataclass(frozen=True, slots=True)
class Working:
    """The job is at work. While a document is read, a question may be answered in between: `ANSWERING`, and then
    `READING` again."""

    activity: Phase


@dataclass(frozen=True, slots=True)
class Opened:
    """The document is open: from a file, or with its pot from the library."""


@dataclass(frozen=True, slots=True)
class Saved:
    """The document is in the library."""

    entry: Entry


@dataclass(frozen=True, slots=True)
class ScanFinished:
    """A scan has ended, or was stopped: all that it found, as JSON; see `scan.account.report`."""

    report: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Stopped:
    """The job was stopped before anything came of it."""


@dataclass(frozen=True, slots=True)
class NotKept:
    """The document cannot be kept for a restart, and why; all goes on."""

    text: str


@dataclass(frozen=True, slots=True)
class QuestionFailed:
    """A question that was asked while the document is read has no answer; reading goes on."""

    error: Exception
    text: str
    question: str


@dataclass(frozen=True, slots=True)
class Failed:
    """The job has failed, in a sentence: its last event."""

    error: Exception
    text: str


_End = Opened | Saved | ScanFinished | Stopped | Failed
JobEvent = Event | ChunkScanned | Waiting | Working | NotKept | QuestionFailed | _End
