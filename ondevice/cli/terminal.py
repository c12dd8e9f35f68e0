"""Output of the commands: answers and tables to standard output, all the rest to standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console, Group
from rich.text import Text

from ondevice.config import option_name
from ondevice.errors import OndeviceError
from ondevice.memory import memory_watched

EXIT_ERROR = 2
EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells count


class Interrupted(Exception):
    """The user stopped us; the message says what had been done until then."""


def out() -> Console:
    """Standard output as it is now (tests and pipes replace it), without colour where that is no terminal."""
    return Console(file=sys.stdout, highlight=False)


def err() -> Console:
    return Console(file=sys.stderr, highlight=False)


def say(text: str, style: str = "dim") -> None:
    """A sentence to standard error, as it is: brackets in it are no markup, and long lines are not broken."""
    err().print(Text(text, style=style), soft_wrap=True)


def print_json(document: dict[str, Any]) -> None:
    """One JSON document on one line of standard output."""
    print(json.dumps(document, ensure_ascii=False), flush=True)


def printable(text: str) -> str:
    """Text of a model or a document without the control characters that could steer a terminal."""
    return "".join(c for c in text if c in "\n\t" or c.isprintable() or c in "\u200d\u00a0\u3000")


@contextmanager
def errors_shown(as_json: bool) -> Iterator[None]:
    """Turn failures that a user can mend, and Ctrl-C, into a message and an exit status."""
    try:
        with memory_watched("working"):
            yield
    except OndeviceError as error:
        show_error(error)
        if as_json:
            print_json({"error": error.to_dict(option_name)})
        raise typer.Exit(EXIT_ERROR) from None
    except (KeyboardInterrupt, Interrupted) as stop:
        what = str(stop) or "Stopped."
        say(what, "yellow")
        if as_json:
            print_json({"error": {"code": "interrupted", "what": what, "where": "", "fix": ""}})
        raise typer.Exit(EXIT_INTERRUPTED) from None


def show_error(error: OndeviceError) -> None:
    """Show an error with its place and its fix: text from files goes in as text, never as markup."""
    shown = error.to_dict(option_name)
    lines = [Text(f"{shown['what'][:1].upper()}{shown['what'][1:]}.", style="bold red")]
    if shown["where"]:
        lines.append(Text(f"  where: {printable(shown['where'])}", style="red"))
    if shown["fix"]:
        lines.append(Text(f"  what to do: {shown['fix']}", style="red"))
    err().print(Group(*lines), soft_wrap=True)
