"""Rows of results as cells: how numbers, cases and repeated trials are shown, in the terminal and in the documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ondevice_bench.results.result import Row, row

HEADER = ("contender", "case", "metric", "value", "p10 to p90", "n")
NUMERIC = ("value", "p10 to p90", "n")  # columns that are set to the right
SHARE = "share"
_TRIAL = "trial"
_SCALES = {"bytes": (1e6, "MB"), "bytes/s": (1e9, "GB/s"), "FLOP/s": (1e9, "GFLOP/s"), SHARE: (0.01, "%")}


def cells(row: Row) -> tuple[str, ...]:
    """One row under `HEADER`."""
    has_spread = row.n > 1 and row.unit != SHARE  # right or wrong has no percentiles
    spread = f"{number(row.p10, row.unit)} to {number(row.p90, row.unit)}" if has_spread else ""
    return (row.contender, case_text(row.case), row.metric, value_text(row.p50, row.unit), spread, str(row.n))


def fold_trials(rows: Sequence[Row]) -> tuple[Row, ...]:
    """Rows that differ in nothing but the trial, made one. Of shares (right or wrong) the mean is shown."""
    groups: dict[tuple[str, tuple[tuple[str, Any], ...], str, str], list[Row]] = {}
    for single in rows:
        case = tuple((key, value) for key, value in single.case.items() if key != _TRIAL)
        groups.setdefault((single.contender, case, single.metric, single.unit), []).append(single)
    if all(len(of) == 1 for of in groups.values()):
        return tuple(rows)
    return tuple(_folded(*key, of) for key, of in groups.items())


def _folded(contender: str, case: tuple[tuple[str, Any], ...], metric: str, unit: str, of: Sequence[Row]) -> Row:
    if len(of) == 1:  # it may be over rounds of its own
        return replace(of[0], case=dict(case))
    values = [one.p50 for one in of]
    folded = row(contender, dict(case), metric, unit, values)
    return replace(folded, p50=float(np.mean(values))) if unit == SHARE else folded


def value_text(value: float, unit: str) -> str:
    """A number with its unit, bytes in MB and shares in percent."""
    shown = _SCALES.get(unit, (1.0, unit))[1]
    return f"{number(value, unit)} {shown}" if shown else number(value, unit)


def number(value: float, unit: str = "") -> str:
    """Three digits that count, thousands separated, in the scale of `value_text`."""
    value /= _SCALES.get(unit, (1.0, unit))[0]
    if value == round(value) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3g}"


def case_text(case: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {cell(value)}" for key, value in case.items())


def cell(value: Any) -> str:
    """One value of a case."""
    return f"{value:,}" if isinstance(value, int) else str(value)


def machine_text(machine: Mapping[str, Any]) -> str:
    device = ", ".join(machine[key] for key in ("device", "vectors") if key in machine)
    return f"{device}, {machine['cores']} cores, {machine['memory_bytes'] / 2**30:.0f} GiB of memory"
