"""The command line: `ondevice app, ask, collection, scan, mcp, models, library`, and some more.

This file only names the commands. Each lives in a module of its own, which loads torch when it runs and not before,
so that `--help` is instant. Other packages that are installed may add commands through `COMMANDS`.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from ondevice import __version__
from ondevice.cli.app import app as start_app
from ondevice.cli.ask import ask
from ondevice.cli.calibrate import calibrate
from ondevice.cli.collection import collection
from ondevice.cli.doctor import doctor
from ondevice.cli.library import delete as delete_entry
from ondevice.cli.library import list_entries
from ondevice.cli.mcp import mcp
from ondevice.cli.models import fetch, list_models
from ondevice.cli.models import remove as remove_model
from ondevice.cli.options import takes_options
from ondevice.cli.plan import plan
from ondevice.cli.scan import scan
from ondevice.cli.terminal import open_streams

COMMANDS = "ondevice.commands"  # entry points: each a Typer whose commands join ours
_ELSEWHERE = {"batch": "./batch", **dict.fromkeys(("bench", "eval", "results", "record"), "./batch ./bench")}


class Commands(TyperGroup):
    """Our commands and those of other packages; of those that are not installed it says how they are."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for found in entry_points(group=COMMANDS):
            if find_spec(found.module.partition(".")[0]) is None:
                continue  # a removed package has left its metadata behind
            self.commands.update(typer.main.get_group(found.load()).commands)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] in _ELSEWHERE and args[0] not in self.commands:
            what = f"`{args[0]}` belongs to another distribution, which is not installed"
            ctx.fail(f"{what}. In a checkout: pip install {_ELSEWHERE[args[0]]}")
        return super().resolve_command(ctx, args)


app = typer.Typer(
    name="ondevice",
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
)


def show_version(wanted: bool) -> None:
    """Print it and leave, where it is asked for."""
    if wanted:
        typer.echo(f"ondevice {__version__}")
        raise typer.Exit


@app.callback()
def about(
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Read documents of any length through a fixed amount of memory, and ask about them."""
    open_streams()
    gc.set_threshold(10_000)  # imports make millions of objects, none of them rubbish


_WITH_OPTIONS: tuple[Callable[..., None], ...] = (start_app, ask, collection, scan, mcp, calibrate, plan)
for command in _WITH_OPTIONS:
    app.command()(takes_options(command))
models = typer.Typer(help="Models of the catalogue, and which are on this machine.", no_args_is_help=True)
app.add_typer(models, name="models")
models.command("list")(list_models)
models.command("fetch")(fetch)
models.command("remove")(remove_model)
saved = typer.Typer(help="Documents that the app has saved.", no_args_is_help=True)
app.add_typer(saved, name="library")
saved.command("list")(list_entries)
saved.command("delete")(delete_entry)
app.command()(doctor)
