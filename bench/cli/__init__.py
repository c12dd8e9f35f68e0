"""`ondevice bench, eval, results, record`: they join the other commands where the laboratory is installed.

torch is loaded when one of them runs, and not before.
"""

from __future__ import annotations

import typer

import ondevice_bench.quality.policies  # noqa: F401  # contenders that are no policies of the product
from ondevice.cli.options import takes_options
from ondevice_bench.cli.measure import command
from ondevice_bench.cli.record import record
from ondevice_bench.cli.results import results
from ondevice_bench.quality.registry import EVALUATIONS
from ondevice_bench.speed.registry import BENCHMARKS

app = typer.Typer()
evaluations = typer.Typer(help="Measure how well a pot remembers.", no_args_is_help=True)
benchmarks = typer.Typer(help="Measure speed and memory beside others.", no_args_is_help=True)
app.add_typer(evaluations, name="eval")
app.add_typer(benchmarks, name="bench")
for group, entries in ((evaluations, EVALUATIONS), (benchmarks, BENCHMARKS)):
    for entry in entries:
        group.command(entry.name)(command(entry))
app.command("results")(results)
app.command("record")(takes_options(record))
