"""`ondevice doctor`: what this machine has, what it lacks, and which model suits it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from ondevice.cli.terminal import errors_shown, out, print_json

_STYLES = {"good": "green", "missing": "yellow", "advice": "cyan", "failure": "bold red"}


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON in the last line.")] = False,
) -> None:
    """Look at this machine: device, driver, memory, disk, packages, models, port, and the model that suits it."""
    with errors_shown(as_json):
        from ondevice.cli.examine import examine

        findings = tuple(examine())
        table = Table(show_header=False, box=None, padding=(0, 1))
        for finding in findings:
            text = Text(finding.text)
            if finding.fix:
                text.append(f"\n{finding.fix}", style="bold")
            table.add_row(Text(finding.topic), Text(finding.state, style=_STYLES[finding.state]), text)
        out().print(table)
        if as_json:
            failures = sum(finding.state == "failure" for finding in findings)
            print_json({"findings": [asdict(finding) for finding in findings], "summary": {"failures": failures}})
