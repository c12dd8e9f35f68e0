"""Results as tables in the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from ondevice.results import Result


def card(result: Result) -> RenderableType:
    """The rows of a result, its summary, and what it was measured on."""
    table = Table(title=result.command, title_justify="left", title_style="bold")
    for column in ("contender", "case", "metric"):
        table.add_column(column)
    for column in ("p50", "p10", "p90", "n"):
        table.add_column(column, justify="right")
    table.add_column("unit")
    for row in result.rows:
        values = (number(row.p50), number(row.p10), number(row.p90), str(row.n))
        table.add_row(row.contender, case_text(row.case), row.metric, *values, row.unit)
    summary = [Text(f"{key}: {number(value)}", style="bold") for key, value in result.summary.items()]
    return Group(table, *summary, Text(machine_text(result.machine), style="dim"))


def number(value: float) -> str:
    """Three digits that count, thousands separated."""
    if value == 0 or abs(value) >= 1000:
        return f"{value:,.0f}"
    digits = 3 if abs(value) < 10 else 1
    return f"{value:.{digits}f}"


def case_text(case: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {value:,}" if isinstance(value, int) else f"{key} {value}" for key, value in case.items())


def machine_text(machine: Mapping[str, Any]) -> str:
    memory = machine["memory_bytes"] / 2**30
    return f"{machine['device']}, {machine['cores']} cores, {memory:.0f} GiB of memory"
