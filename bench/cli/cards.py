"""Results as tables in the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from ondevice_bench.results.result import Result


def card(result: Result) -> RenderableType:
    """The rows of a result, its summary, and what it was measured on."""
    from ondevice_bench.results.tables import HEADER, NUMERIC, cells, fold_trials, machine_text, number

    table = Table(title=Text(result.command), title_justify="left", title_style="bold")
    for column in HEADER:
        table.add_column(column, justify="right" if column in NUMERIC else "left")
    for row in fold_trials(result.rows):
        table.add_row(*(Text(cell) for cell in cells(row)))
    summary = [Text(f"{key}: {number(value)}", style="bold") for key, value in result.summary.items()]
    return Group(table, *summary, Text(machine_text(result.machine), style="dim"))
