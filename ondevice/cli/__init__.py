"""The command line: `ondevice app, ask, library, eval, bench, results, fetch, doctor`.

This file only names the commands. Each lives in a module of its own, which loads torch when it runs and not before,
so that `--help` is instant.
"""

from __future__ import annotations

import typer

from ondevice.cli.app import app as start_app
from ondevice.cli.ask import ask
from ondevice.cli.bench import art, decode, equip, ingest, slim
from ondevice.cli.bench import specprefill as bench_specprefill
from ondevice.cli.doctor import doctor
from ondevice.cli.evaluate import art_curve, calibrate, passkey, recall, slim_curve, sources, specprefill, speculator
from ondevice.cli.fetch import fetch
from ondevice.cli.library import delete as delete_entry
from ondevice.cli.library import list_entries
from ondevice.cli.options import takes_options
from ondevice.cli.results import results

app = typer.Typer(
    name="ondevice",
    help="Read documents of any length through a fixed amount of memory, and ask about them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
)
evaluations = typer.Typer(help="Measure how well a pot remembers.", no_args_is_help=True)
benchmarks = typer.Typer(help="Measure speed and memory beside others.", no_args_is_help=True)

app.command("app")(takes_options(start_app))
app.command("ask")(takes_options(ask))
app.add_typer(evaluations, name="eval")
evaluations.command("passkey")(takes_options(passkey))
evaluations.command("recall")(takes_options(recall))
evaluations.command("sources")(takes_options(sources))
evaluations.command("art-curve")(takes_options(art_curve))
evaluations.command("slim-curve")(takes_options(slim_curve))
evaluations.command("specprefill")(takes_options(specprefill))
evaluations.command("speculator")(takes_options(speculator))
app.add_typer(benchmarks, name="bench")
benchmarks.command("ingest")(takes_options(ingest))
benchmarks.command("decode")(takes_options(decode))
benchmarks.command("equip")(takes_options(equip))
benchmarks.command("slim")(takes_options(slim))
benchmarks.command("art")(takes_options(art))
benchmarks.command("specprefill")(takes_options(bench_specprefill))
app.command("calibrate")(takes_options(calibrate))
saved = typer.Typer(help="Documents that the app has saved.", no_args_is_help=True)
app.add_typer(saved, name="library")
saved.command("list")(list_entries)
saved.command("delete")(delete_entry)
app.command("results")(results)
app.command("fetch")(fetch)
app.command("doctor")(doctor)
