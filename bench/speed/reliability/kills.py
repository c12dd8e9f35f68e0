"""`ondevice ask`, killed at random moments of its reading, and given again: it goes on, and answers the same."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ondevice_bench.results.result import Row, row

_TRIES = 3  # for each kill: a reading may end before its moment has come
_QUESTION = "What is this text about?"
# The command, with another time between two copies of what is read.
_CHILD = """
import sys
from ondevice.cli import app
from ondevice.session import checkpoints
checkpoints.EVERY_SECONDS = float(sys.argv.pop(1))
checkpoints._MOST_SHARE = 1.0
app()
"""


@dataclass(frozen=True, slots=True)
class Kill:
    """One process that was killed, and the one after it.

    Attributes:
        lost_seconds: between the last copy and the kill.
        has_resumed: the one after it has gone on from that copy.
        is_equal: it has answered as one that was never killed, and so has its ledger.
    """

    lost_seconds: float
    has_resumed: bool
    is_equal: bool


def kill_readings(
    text: Path, folder: Path, num_kills: int, options: list[str], every_seconds: float, seed: int = 0
) -> Iterator[Kill]:
    """Read a text again and again, and kill each reading once after its first copy.

    Args:
        folder: where the copies go; nothing else may be in it.
        options: of the command.
        every_seconds: between two copies.
    """
    command = [sys.executable, "-c", _CHILD, str(every_seconds), "ask", str(text), _QUESTION, *options, "--json"]
    environment = os.environ | {"ONDEVICE_DATA": str(folder)}
    began = time.monotonic()
    expected, _ = _answered(command, environment)
    whole_seconds = time.monotonic() - began
    moments, num_killed = random.Random(seed), 0
    for _ in range(_TRIES * num_kills):
        if num_killed == num_kills:
            return
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None and _last_copy(folder) is None:
            time.sleep(0.02)
        with suppress(subprocess.TimeoutExpired):
            process.wait(moments.uniform(0, 0.3 * whole_seconds))
        copy = _last_copy(folder)  # None: it has ended before, and taken it away
        process.kill()
        process.wait()
        if copy is None:
            continue
        lost_seconds, num_killed = time.time() - copy, num_killed + 1
        answered, said = _answered(command, environment)
        yield Kill(
            lost_seconds, "Going on where reading was broken off" in " ".join(said.split()), answered == expected
        )


def rows_of(kills: list[Kill], every_seconds: float) -> list[Row]:
    """Rows of a result."""
    name, case = "kill -9 while reading", {"kills": len(kills), "seconds between copies": every_seconds}
    return [
        row(name, case, "gone on from the last copy", "kills", [sum(kill.has_resumed for kill in kills)]),
        row(name, case, "the same answer and ledger", "kills", [sum(kill.is_equal for kill in kills)]),
        row(name, case, "lost, at most", "s", [max((kill.lost_seconds for kill in kills), default=0.0)]),
    ]


def _answered(command: list[str], environment: dict[str, str]) -> tuple[Any, str]:
    """The answers of a whole run, without its times; and its output."""
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    report = json.loads(done.stdout.splitlines()[-1])
    return (report["ledger"], [turn["text"] for turn in report["turns"]]), done.stderr


def _last_copy(folder: Path) -> float | None:
    """When the last copy was written."""
    for path in (folder / "readings").glob("[!.]*.reading"):
        try:
            return path.stat().st_mtime
        except OSError:  # it has just gone
            return None
    return None
