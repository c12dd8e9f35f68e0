"""The form of the tables of this folder: a paper, its claims, and where the figures of ours stand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Verdict = Literal["agrees", "more", "less", "contrary", "no statement", "another test", "not measured"]


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure of ours: a key of a file's summary, or the rows that agree in contender, metric and case.

    Attributes:
        file: name of the result file.
        key: of its summary; "" for rows.
        unit: of the key, for a summary has none.
        metric: of the rows. `RECALL` of `eval recall` comes from its losses.
        contender: of the rows; "" is that of ours where recall comes from losses.
        case: some of their case.
    """

    file: str
    key: str = ""
    unit: str = ""
    metric: str = ""
    contender: str = ""
    case: Mapping[str, Any] = field(default_factory=dict)

    @property
    def where(self) -> str:
        """Its place in the file, for a message."""
        case = ", ".join(f"{name} {value}" for name, value in self.case.items())
        return f"`{self.key}` in its summary" if self.key else f"{self.metric} of {self.contender or 'ours'} at {case}"


def summary(file: str, key: str, unit: str = "") -> Figure:
    """A figure of a summary."""
    return Figure(file, key=key, unit=unit)


def rows(file: str, metric: str, contender: str = "", case: Mapping[str, Any] | None = None) -> Figure:
    """A figure of rows: a score over all of them, or from the least to the most of them."""
    return Figure(file, metric=metric, contender=contender, case=case or {})


def longbench(file: str, **contenders: str) -> dict[str, Figure]:
    """The scores of contenders on LongBench, by the names that a text has for them."""
    return {name: rows(file, "LongBench score", contender) for name, contender in contenders.items()}


@dataclass(frozen=True, slots=True)
class Claim:
    """One table or figure of a paper beside ours.

    Attributes:
        place: its number in the paper, and the setting there.
        paper: the figures that stand there.
        verdict: how ours compare.
        says: what differs, or why there is no figure of ours.
        ours: text with `{names}` of `figures`; "" where nothing was measured.
        setting: of ours, beside model and machine; `{pot.capacity}` takes a value from the file's settings.
        model: that ran, where the settings of the files do not name it; None if they do.
        figures: by name.
        command: what measures it, where there is no file.
        holds: what `says` rests on, as `name > name` or `name < 1.5`; a test holds it against the files.
    """

    place: str
    paper: str
    verdict: Verdict
    says: str
    ours: str = ""
    setting: str = ""
    model: str | None = None
    figures: Mapping[str, Figure] = field(default_factory=dict)
    command: str = ""
    holds: tuple[str, ...] = ()

    @property
    def files(self) -> tuple[str, ...]:
        """Names of its result files, each once."""
        return tuple(dict.fromkeys(figure.file for figure in self.figures.values()))


@dataclass(frozen=True, slots=True)
class Paper:
    """A paper: its short name, title and link, one sentence on what it claims and one on what is found here."""

    name: str
    title: str
    link: str
    claim: str
    finding: str
    claims: tuple[Claim, ...]

    def files(self) -> Iterator[str]:
        """Names of its result files in the order of the rows, each once."""
        yield from dict.fromkeys(name for claim in self.claims for name in claim.files)
