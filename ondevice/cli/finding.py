"""One line of what `ondevice doctor` reports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["good", "missing", "advice", "failure"]


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check: its subject and what was found.

    Attributes:
        state: a failure keeps something from working that this machine could do; what is missing is not needed by all.
        fix: a command or a sentence, "" where nothing is to be done.
    """

    topic: str
    state: State
    text: str
    fix: str = ""
