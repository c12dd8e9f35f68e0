"""Figures of ours read from the result files: as text with n and interval, and as a number for comparisons."""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from ondevice_bench.results.comparison import lines_of
from ondevice_bench.results.front_page import figure_text
from ondevice_bench.results.intervals import mean
from ondevice_bench.results.papers.paper import Claim, Figure
from ondevice_bench.results.reading import RECALL
from ondevice_bench.results.result import Result, ResultError, Row
from ondevice_bench.results.tables import SHARE, number, value_text

_PLACEHOLDER = re.compile(r"\{([\w.]+)\}")
_SIDES = {"<": operator.lt, ">": operator.gt}

Results = Mapping[str, Result]


def result_of(name: str, results: Results, place: str) -> Result:
    """The result that a row of the page names.

    Raises:
        ResultError: there is no such file, or it is unfinished.
    """
    if name in results:
        return results[name]
    raise _missing(name, place, "the file is not there, or is unfinished")


def text_of(figure: Figure, results: Results, place: str) -> str:
    """A figure with its unit; a score over several questions with n and interval.

    Raises:
        ResultError: it is in no file.
    """
    return _read(figure, results, place)[1]


def value_of(figure: Figure, results: Results, place: str) -> float:
    """The figure alone: the mean of scores, the median of all else.

    Raises:
        ResultError: it is in no file.
    """
    return _read(figure, results, place)[0]


def _read(figure: Figure, results: Results, place: str) -> tuple[float, str]:
    result = result_of(figure.file, results, place)
    if figure.key:
        if figure.key not in result.summary:
            raise _missing(figure.file, place, f"there is no {figure.where}")
        value = result.summary[figure.key]
        return value, value_text(value, figure.unit)
    found = _rows(figure, result)
    if not found and figure.metric == RECALL:
        return _recall(figure, result, place)
    if not found:
        raise _missing(figure.file, place, f"there are no rows with {figure.where}")
    return _shown(found)


def _rows(figure: Figure, result: Result) -> list[Row]:
    asked = figure.case.items()
    named = (row for row in result.rows if row.contender == figure.contender and row.metric == figure.metric)
    return [row for row in named if asked <= row.case.items()]


def _shown(found: list[Row]) -> tuple[float, str]:
    values, unit = np.asarray([row.p50 for row in found], np.float64), found[0].unit
    if len(found) == 1:
        counted = f", n = {found[0].n}" if unit == SHARE and found[0].n > 1 else ""
        return float(values[0]), value_text(values[0], unit) + counted
    if unit == SHARE:
        score = mean(values, is_share=True)
        return score.value, figure_text(score, unit)
    return float(np.median(values)), f"{number(values.min(), unit)} to {value_text(values.max(), unit)}"


def _recall(figure: Figure, result: Result, place: str) -> tuple[float, str]:
    """The share of a full cache's, of losses."""
    for line in lines_of(result):
        if line.metric == RECALL and figure.contender in ("", line.name):
            return line.figure.value, figure_text(line.figure, line.unit)
    raise _missing(figure.file, place, f"there are no losses for {figure.where}")


def filled(text: str, claim: Claim, results: Results) -> str:
    """A text of a row with its figures; another name is a setting of the row's first file.

    Raises:
        ResultError: a figure or setting is in no file.
    """

    def shown(found: re.Match[str]) -> str:
        name = found[1]
        if name in claim.figures:
            return text_of(claim.figures[name], results, claim.place)
        return _setting(name, claim, results)

    return _PLACEHOLDER.sub(shown, text)


def _setting(name: str, claim: Claim, results: Results) -> str:
    if not claim.files:
        raise _missing("", claim.place, f"`{name}` needs a file")
    value: Any = result_of(claim.files[0], results, claim.place).config
    for part in name.split("."):
        if not isinstance(value, Mapping) or part not in value:
            raise _missing(claim.files[0], claim.place, f"there is no setting `{name}`")
        value = value[part]
    return f"{value:,}" if isinstance(value, int) else str(value)


def untrue(claim: Claim, results: Results) -> list[str]:
    """Comparisons of `Claim.holds` that the files do not bear out, with both figures.

    Raises:
        ResultError: a figure is in no file.
    """
    failed = []
    for said in claim.holds:
        left, side, right = said.split()
        ours, other = (_number(name, claim, results) for name in (left, right))
        if not _SIDES[side](ours, other):
            failed.append(f"{claim.place}: {said} ({ours:.3g}, {other:.3g})")
    return failed


def _number(name: str, claim: Claim, results: Results) -> float:
    return value_of(claim.figures[name], results, claim.place) if name in claim.figures else float(name)


def _missing(file: str, place: str, why: str) -> ResultError:
    return ResultError(
        f"No figure for {place} in {file or 'any file'}: {why}",
        where="bench/results/papers",
        fix="Measure it again, or change the row.",
    )
