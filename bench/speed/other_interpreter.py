"""Work done by a program under another interpreter, as contenders are that need packages of their own."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ondevice.errors import ModelError

_LAST_LINES = 3


def by_program(who: str, python: Path, program: Path, task: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """Let another interpreter run a program that takes a task as JSON and gives its figures as JSON, in its last line.

    Returns:
        The figures, and what it wrote to standard error.

    Raises:
        ModelError: it ended without figures; `who` says so, in its own words.
    """
    # -P: beside the program lie modules that are called as packages of that environment.
    done = subprocess.run(
        [str(python), "-P", str(program)], input=json.dumps(task), capture_output=True, text=True, check=False
    )
    if done.returncode < 0:
        raise ModelError(f"{who} was ended by {signal.Signals(-done.returncode).name}: {end_of(done.stderr)}")
    if done.returncode:
        raise ModelError(f"{who} says: {end_of(done.stderr)}")
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures, done.stderr


def end_of(text: str) -> str:
    """Its last lines in one."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " ".join(lines[-_LAST_LINES:]) or "nothing"
