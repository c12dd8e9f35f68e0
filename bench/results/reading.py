"""One row of the table of `headlines`: a command, what it measures, and which contenders are ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ondevice_bench.results.tables import SHARE

Better = Literal["more", "less", ""]
Case = Mapping[str, Any]

FIRST = "*"  # in place of a contender's name: the one that a file names first
IN_TOKENS = "tokens of the text to a slot"
IN_BYTES = "bytes of the text in bfloat16 to a byte of the pot"
NATS = "nats"
RECALL = "recall of a full cache's"  # the share of what it knows of a text beyond what nobody has to read
_MORE = ("tokens/s", SHARE, "documents/s", "bytes/s", "GB/s", "FLOP/s", "TFLOP/s")
_LESS = ("s", "ms", "us", "bytes", NATS)
DERIVED = ("x", "ratio")  # units of figures that are made of others of the same file


def without_trial(case: Case) -> dict[str, Any]:
    """All of a case but which question it was."""
    return {key: value for key, value in case.items() if key != "trial"}


def only(*keys: str) -> Callable[[Case], dict[str, Any]]:
    """Of a case nothing but these."""
    return lambda case: {key: case[key] for key in keys if key in case}


@dataclass(frozen=True, slots=True)
class Reading:
    """One command: its figures, and the contenders that are ours. Every other contender is a rival.

    Attributes:
        question: of a reader, under which they stand on the first page.
        what: was measured, in a few words.
        ours: how the names of our contenders begin, or `FIRST`; none: nobody is held against anybody.
        group: what of a case stays; all rows that agree in it are questions to the same thing.
        better: by metric, where its unit does not say it; "": neither more nor less.
        shares: by metric of losses, who knows nothing and who knows all; shown is `RECALL`, the share between them.
        hidden: metrics that are no result, or that stand beside each figure.
        instead: by metric, one that says the same with an interval; if that is there, the first is hidden.
        is_sized: every contender but a full cache is shown with the sizes `IN_TOKENS` and `IN_BYTES`, or not at all.
        is_last: of the rows of a contender the one with the most tokens counts.
        note: words that a contender's name holds, and what is to be said beside its scores.
    """

    question: str
    what: str
    ours: tuple[str, ...] = ()
    group: Callable[[Case], dict[str, Any]] = without_trial
    better: Mapping[str, Better] = field(default_factory=dict)
    shares: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    hidden: tuple[str, ...] = ()
    instead: Mapping[str, str] = field(default_factory=dict)
    is_sized: bool = False
    is_last: bool = False
    note: tuple[str, str] | None = None

    def direction(self, metric: str, unit: str) -> Better:
        """The better side of a metric, by its name or else by its unit."""
        return self.better.get(metric, "more" if unit in _MORE else "less" if unit in _LESS else "")
