"""Comparisons: every contender of a result held against ours, with interval and side, by the rule of `reading`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ondevice_bench.results.headlines import reading_of
from ondevice_bench.results.intervals import Estimate, Scores, estimate, mean
from ondevice_bench.results.reading import FIRST, IN_BYTES, IN_TOKENS, NATS, RECALL, Better, Reading
from ondevice_bench.results.result import Result, Row
from ondevice_bench.results.tables import SHARE, number

Side = Literal["ahead of", "level with", "behind", "not counted"]
SIDES: tuple[Side, ...] = ("ahead of", "level with", "behind", "not counted")
_FULL = "full"  # a contender that is the same in place of a pot of any size
_WITHOUT_POT = {_FULL, "none"}
_SCORES = (SHARE, NATS)  # units of what is asked once for a question
_ROUNDING = 1e-9  # means of the same scores may differ by so much

_Sizes = Mapping[tuple[str, int], Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class Rival:
    """Another contender of the same line.

    Attributes:
        name: with the size of its pot, if that is said.
        figure: its own.
        by: ours less its own where `is_ratio` is false, and ours over its own where it is true.
    """

    name: str
    figure: Estimate
    by: Estimate
    is_ratio: bool
    side: Side


@dataclass(frozen=True, slots=True)
class Line:
    """One metric of one contender of ours in one group of cases; `rivals` are all others that were measured there.

    A score is over questions, with an interval of 95 %; what is no score is over rounds, from p10 to p90.
    """

    metric: str
    unit: str
    case: dict[str, Any]
    name: str
    figure: Estimate
    rivals: tuple[Rival, ...]

    @property
    def is_score(self) -> bool:
        """True of answers, False of time and memory."""
        return self.unit in _SCORES


def lines_of(result: Result) -> list[Line]:
    """All comparisons of a result, in the order of its rows."""
    reading, sizes = reading_of(result.command), _sizes(result)
    metrics: dict[tuple[str, str], list[Row]] = {}
    for row in result.rows:
        metrics.setdefault((row.metric, row.unit), []).append(row)
    names = {metric for metric, _ in metrics}
    return [
        line
        for (metric, _), rows in metrics.items()
        if metric not in reading.hidden and reading.instead.get(metric) not in names
        for group in _groups(rows, reading, sizes)
        for line in group.lines()
    ]


def _groups(rows: Sequence[Row], reading: Reading, sizes: _Sizes) -> list[_Group]:
    """Rows of one metric by what they have in common."""
    if reading.is_last:
        last: dict[str, int] = {}
        for row in rows:
            last[row.contender] = max(last.get(row.contender, 0), row.case["tokens"])
        rows = [row for row in rows if row.case["tokens"] == last[row.contender]]
    apart = ("budget", "tokens") if reading.is_last else ("budget",)  # no part of which question it is
    groups: dict[tuple[Any, ...], _Group] = {}
    full: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        case = reading.group(row.case)
        key = (*case.values(), row.contender.partition(" on ")[2])  # `H2O on SmolLM2` is held against its own model
        group = groups.setdefault(key, _Group(row.metric, row.unit, case, {}, reading, sizes))
        question = tuple(value for name, value in row.case.items() if name not in apart)
        own = group.of.setdefault(row.contender, {})
        own[question if question not in own else (*question, len(own))] = row  # cases that are told apart by nothing
        if row.contender == _FULL and "budget" in row.case:
            full[question] = row
    for group in groups.values():
        asked = {question for questions in group.of.values() for question in questions}
        if own_full := {question: row for question, row in full.items() if question in asked}:
            group.of.setdefault(_FULL, own_full)
    return [*groups.values()]


def _sizes(result: Result) -> _Sizes:
    """Both sizes of the pot of each contender and budget."""
    sizes: dict[tuple[str, int], dict[str, float]] = {}
    for row in result.rows:
        if row.metric in (IN_TOKENS, IN_BYTES):
            sizes.setdefault((row.contender, row.case["budget"]), {})[row.metric] = row.p50
    return sizes


@dataclass(frozen=True)
class _Group:
    """Contenders that were measured in the same metric and the same cases: the rows `of` each, by question."""

    metric: str
    unit: str
    case: dict[str, Any]
    of: dict[str, dict[tuple[Any, ...], Row]]
    reading: Reading
    sizes: _Sizes

    def lines(self) -> list[Line]:
        names = {name: shown for name in self.of if (shown := self._shown(name))}
        if self.reading.is_sized and not set(names) - _WITHOUT_POT:
            return []
        first = next((name for name in names if name not in _WITHOUT_POT), "")
        begins = tuple(one for one in self.reading.ours if one != FIRST)
        ours = [n for n in names if (n == first and FIRST in self.reading.ours) or (begins and n.startswith(begins))]
        return [
            Line(
                RECALL if self._ends else self.metric,
                SHARE if self._ends else self.unit,
                self.case,
                names[name],
                self._figure(name),
                tuple(self._rival(name, other, names[other]) for other in names if ours and other != name),
            )
            for name in ours or names
        ]

    @property
    def _has_questions(self) -> bool:
        return self.unit in _SCORES and any(len(questions) > 1 for questions in self.of.values())

    @property
    def _ends(self) -> tuple[str, str] | None:
        """The contenders that know nothing and all, where a share of that is shown."""
        ends = self.reading.shares.get(self.metric)
        return ends if ends and all(name in self.of for name in ends) else None

    def _shown(self, name: str) -> str:
        """Its name with the size of its pot; "" if that has to be said and is not in the file."""
        if not self.reading.is_sized or name in _WITHOUT_POT:
            return name
        size = self.sizes.get((name, self.case["budget"]), {})
        if not {IN_TOKENS, IN_BYTES} <= size.keys():
            return ""
        return f"{name} ({number(size[IN_TOKENS])}:1 in tokens, {number(size[IN_BYTES])}:1 in bytes)"

    def _figure(self, name: str) -> Estimate:
        if not self._has_questions:
            return _rounds(self.of[name])
        if self._ends is None:
            return mean(self._scores(name)[:, 0], is_share=self.unit == SHARE)
        return estimate(self._scores(name, *self._ends), lambda means: _share(means[0], *means[1:]))

    def _rival(self, ours: str, other: str, shown: str) -> Rival:
        own, figure = self._figure(ours), self._figure(other)
        direction = self.reading.direction(self.metric, self.unit)
        if not self._has_questions:
            is_ratio = self.unit not in _SCORES and figure.value != 0
            off = own.value / figure.value if is_ratio else own.value - figure.value
            estimated = Estimate(off, None, None, min(own.n, figure.n))
            return Rival(shown, figure, estimated, is_ratio, _side_of_rounds(own, figure, direction))
        if self._ends is None:
            by = estimate(self._scores(ours, other), lambda means: means[0] - means[1])
        else:
            direction = "more"
            scores = self._scores(ours, other, *self._ends)
            by = estimate(scores, lambda means: _share(means[0], *means[2:]) - _share(means[1], *means[2:]))
        return Rival(shown, figure, by, False, _side(by, direction))

    def _scores(self, *names: str) -> Scores:
        """Of the questions that all of these have answered: (questions, contenders)."""
        shared = [one for one in self.of[names[0]] if all(one in self.of[name] for name in names)]
        return np.asarray([[self.of[name][one].p50 for name in names] for one in shared], np.float64)


def _share(loss: Scores, none: Scores, full: Scores) -> Scores:
    return (none - loss) / (none - full)


def _rounds(rows: Mapping[tuple[Any, ...], Row]) -> Estimate:
    """The median over rounds, from p10 to p90: those of one row, or one a row.

    Several questions to one reading have the speed of that reading in a row each: it counts once.
    """
    if len(rows) == 1:
        (row,) = rows.values()
        has_range = row.n > 1 and row.unit != SHARE  # right or wrong has no percentiles
        return Estimate(row.p50, row.p10, row.p90, row.n) if has_range else Estimate(row.p50, None, None, row.n)
    values = sorted({row.p50 for row in rows.values()})
    if len(values) == 1:
        return Estimate(values[0], None, None, 1)
    p10, p50, p90 = (float(one) for one in np.percentile(values, (10, 50, 90)))
    return Estimate(p50, p10, p90, len(values))


def _side(by: Estimate, direction: Better) -> Side:
    """The side on which an interval of a difference lies."""
    if by.low is None or by.high is None or not direction:
        return "not counted"
    if by.low <= _ROUNDING and by.high >= -_ROUNDING:
        return "level with"
    return "ahead of" if (by.low > 0) == (direction == "more") else "behind"


def _side_of_rounds(own: Estimate, other: Estimate, direction: Better) -> Side:
    """The same of two ranges of rounds."""
    if own.low is None or own.high is None or other.low is None or other.high is None or not direction:
        return "not counted"
    if own.low <= other.high and other.low <= own.high:
        return "level with"
    return "ahead of" if (own.low > other.high) == (direction == "more") else "behind"
