"""Output of the commands: answers and tables to standard output, all the rest to standard error."""

from __future__ import annotations

import errno
import io
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console, Group
from rich.text import Text

from ondevice.config import option_name
from ondevice.errors import OndeviceError
from ondevice.machine.memory import memory_watched

EXIT_ERROR = 2
EXIT_INTERRUPTED, EXIT_PIPE = 130, 141  # 128 + SIGINT, or SIGPIPE, as shells count
# JSON may hold these as they are, and some terminals take them for the beginning of a command.
_ESCAPED = {code: f"\\u{code:04x}" for code in range(0x7F, 0xA0)}


class Interrupted(Exception):
    """The user stopped us; the message says what had been done until then."""


def open_streams() -> None:
    """Let every stream be there, and take every character, whatever this process was started with.

    A closed one is as empty as the null device; what an encoding does not have becomes a question mark.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - for as long as the process lives
    for stream in (sys.stdin, sys.stdout):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def out() -> Console:
    """Standard output as it is now (tests and pipes replace it), without colour if that is no terminal."""
    return Console(file=sys.stdout, highlight=False)


def err() -> Console:
    return Console(file=sys.stderr, highlight=False)


def say(text: str, style: str = "dim") -> None:
    """A sentence to standard error, as it is: brackets in it are no markup, and long lines are not broken."""
    err().print(Text(printable(text), style=style), soft_wrap=True)


def print_json(document: dict[str, Any]) -> None:
    """One JSON document on one line of standard output."""
    print(json.dumps(document, ensure_ascii=False).translate(_ESCAPED), flush=True)


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
    except OSError as error:  # what the engine knows of is an error of ours by now
        if error.errno == errno.EPIPE:  # whoever read it has left, as `head` does
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - else the interpreter would try once more at its end
            raise typer.Exit(EXIT_PIPE) from None
        say(f"The system refused it: {error.strerror or error}", "bold red")
        if error.errno == errno.ENOSPC:
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        raise typer.Exit(EXIT_ERROR) from None
    except (KeyboardInterrupt, Interrupted) as stop:
        what = str(stop) or "Stopped."
        say(what, "yellow")
        if as_json:
            print_json({"error": {"code": "interrupted", "what": what, "where": "", "fix": ""}})
        raise typer.Exit(EXIT_INTERRUPTED) from None


@contextmanager
def ended_at_once(first: Callable[[], object] = lambda: None) -> Iterator[None]:
    """Let Ctrl-C and SIGTERM end the process, after `first`, while there is nothing else to lose.

    KeyboardInterrupt may come in the middle of an import, and whoever wrote `except` there takes it for a fault of what
    is imported: all goes on, as if nobody had asked.
    """

    def end(*_: object) -> None:
        first()
        say("Stopped.", "yellow")
        os._exit(EXIT_INTERRUPTED)

    with signals_handled(end):
        yield


@contextmanager
def signals_handled(handle: Callable[[int, Callable[[], None]], None]) -> Iterator[None]:
    """Hand Ctrl-C and SIGTERM to `handle`, with what gives them back to whoever had them before, as the end does."""

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        signal.signal(number, lambda number, _: handle(number, restore))
    try:
        yield
    finally:
        restore()


def show_error(error: OndeviceError) -> None:
    """Show an error with its place and its fix: text from files goes in as text, never as markup."""
    shown = error.to_dict(option_name)
    lines = [Text(f"{shown['what'][:1].upper()}{shown['what'][1:]}.", style="bold red")]
    if shown["where"]:
        lines.append(Text(f"  where: {printable(shown['where'])}", style="red"))
    if shown["fix"]:
        lines.append(Text(f"  what to do: {shown['fix']}", style="red"))
    err().print(Group(*lines), soft_wrap=True)
