"""A name on the command line to a `Document`: a file, or standard input; asks for a password where one is needed.

There is no --password option: other users of a machine can read the arguments of a running command, and shells keep
them in their history. A terminal is asked, a script pipes it in with --password-stdin.
"""

from __future__ import annotations

import getpass
import sys
from pathlib import Path
from typing import Annotated

import typer

from ondevice.cli.progress import ProgressDisplay
from ondevice.documents import Document, extract, read_stream, watched
from ondevice.errors import ConfigError, PasswordRequired, WrongPassword

STREAM = "-"
_MAX_ATTEMPTS = 3
PasswordStdin = Annotated[
    bool,
    typer.Option("--password-stdin", hidden=True, help="Take the document's password from the first line of stdin."),
]


def open_document(name: str, password_stdin: bool, display: ProgressDisplay) -> Document:
    """The document, its pages extracted with progress shown.

    Raises:
        DocumentError: it cannot be read.
        ConfigError: both the document and its password are to come from standard input.
    """
    if name == STREAM:
        if password_stdin:
            raise ConfigError("--password-stdin needs a file", fix="Standard input holds the document itself.")
        return read_stream(sys.stdin.buffer)
    try:
        return _extract(name, sys.stdin.readline().rstrip("\r\n") if password_stdin else None, display)
    except PasswordRequired as error:
        display.clear()
        if not sys.stdin.isatty():
            fix = "Run this in a terminal to be asked for it, or pipe it in with --password-stdin."
            raise PasswordRequired(error.what, where=error.where, fix=fix) from None
    return _ask_for_password(name, display)


def _ask_for_password(name: str, display: ProgressDisplay) -> Document:
    for attempt in range(_MAX_ATTEMPTS):
        try:
            return _extract(name, getpass.getpass(f"Password for {Path(name).name}: "), display)
        except WrongPassword:
            display.clear()
            if attempt == _MAX_ATTEMPTS - 1:
                raise
            print("That does not open it.", file=sys.stderr)
    raise AssertionError("unreachable")


def _extract(name: str, password: str | None, display: ProgressDisplay) -> Document:
    return watched(extract(name, password=password), display.apply)
