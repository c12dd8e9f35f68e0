"""What a line of the first page of docs/results is made of: a run, its figures, and whom they are held against."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from ondevice.result import Result
from ondevice_bench.results.tables import SHARE, value_text

Kind = Literal["ratio", "difference"]


@dataclass(frozen=True, slots=True)
class Rival:
    """Whom a measurement is held against.

    Attributes:
        name: as a reader knows it.
        key: in the summary of the run; the figure is its value, less that of `minus` where there is one.
        kind: a ratio is held against 1 and a difference against 0.
        less_is_better: for instance of memory.
    """

    name: str
    key: str
    minus: str = ""
    kind: Kind = "ratio"
    less_is_better: bool = False

    def value(self, result: Result) -> float | None:
        """None where it was not measured."""
        keys = [self.key, *([self.minus] if self.minus else [])]
        if any(key not in result.summary for key in keys):
            return None
        value, *less = (result.summary[key] for key in keys)
        return value - sum(less)

    def lead(self, value: float) -> float:
        """How far ahead it is; below 0: behind."""
        by = value - (1.0 if self.kind == "ratio" else 0.0)
        return -by if self.less_is_better else by

    def shown(self, value: float) -> str:
        return f"{value:.2f}x" if self.kind == "ratio" else f"{value:+.2f}"


@dataclass(frozen=True, slots=True)
class Headline:
    """One measurement: one line.

    Attributes:
        what: was measured, in a few words.
        run: name of its file.
        rivals: whom it is held against; nobody: it stands alone.
        figure: key of a figure that is shown after `what`, in `unit`.
    """

    what: str
    run: str
    rivals: tuple[Rival, ...] = ()
    figure: str = ""
    unit: str = SHARE

    def result(self, results: Mapping[str, Result]) -> Result | None:
        """The finished run, if there is one."""
        result = results.get(self.run)
        return result if result is not None and result.complete else None

    def text(self, result: Result) -> str:
        return f"{self.what}: {value_text(result.summary[self.figure], self.unit)}" if self.figure else self.what


@dataclass(frozen=True, slots=True)
class Question:
    """What a reader wants to know; `pictures` are of runs."""

    text: str
    lines: tuple[Headline, ...]
    pictures: tuple[str, ...] = ()
