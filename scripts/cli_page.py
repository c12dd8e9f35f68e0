"""`make docs`: rewrites the reference in docs/cli.md, the commands and settings as `--help` has them.

The part of that page above the mark is written by hand and stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path

import typer
from typer.core import TyperGroup
from typer.main import get_command

from ondevice.cli import app
from ondevice.cli.options import AnswerOptions, PotOptions

PAGE = Path(__file__).resolve().parents[1] / "docs" / "cli.md"
MARK = "<!-- `make docs` writes the rest. -->\n"
LABORATORY = ("eval", "bench", "results", "record")  # of a distribution of its own: see bench/README.md


def page() -> str:
    """The whole page: the part above the mark as it is, then the reference."""
    written = PAGE.read_text(encoding="utf-8").partition(MARK)[0]
    return written + MARK + "\n".join(reference()) + "\n"


def reference() -> Iterator[str]:
    """Lines in Markdown: every command with its own options, then the settings that commands share."""
    commands = list(_commands(get_command(app), typer.Context(get_command(app), info_name="ondevice")))
    shared = {**PotOptions.settings, **AnswerOptions.settings}.keys()
    yield "\n## Commands\n\n`ondevice COMMAND --help-all` shows the same."
    for context in commands:
        command = context.command
        own = [one for one in command.params if one.name not in shared]
        usage = f"`{command.get_usage(context).removeprefix('Usage: ')}`"
        yield f"\n### {context.command_path}\n\n{command.help}\n"
        yield usage if len(own) == len(command.params) else f"{usage}, with the [settings](#settings)"
        yield from _listed(own, context)
    yield "\n## Settings"
    ask = next(context for context in commands if context.info_name == "ask")  # the command that takes all of them
    settings = [one for one in ask.command.params if one.name in shared]
    for panel, options in groupby(settings, key=lambda one: one.rich_help_panel):
        yield f"\n### {panel}"
        yield from _listed(options, ask)


def _commands(group: TyperGroup, context: typer.Context) -> Iterator[typer.Context]:
    for name, command in group.commands.items():
        inner = typer.Context(command, parent=context, info_name=name)
        if name not in LABORATORY:
            yield from _commands(command, inner) if isinstance(command, TyperGroup) else (inner,)


def _listed(parameters: Iterable, context: typer.Context) -> Iterator[str]:
    parameters = list(parameters)
    for parameter in parameters:
        parameter.hidden = False  # as `--help-all` has it
    records = filter(None, (parameter.get_help_record(context) for parameter in parameters))
    lines = [f"- `{name}`: {about}".replace("  [", " [") for name, about in records]
    yield from ["", *lines] if lines else ()


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
