"""`ondevice batch` with something killed in its middle: a worker, the command, the node it runs on, another node.

Afterwards every document has to be there, and none to have been done twice.
"""

from __future__ import annotations

import secrets
import socket
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from ondevice.errors import OndeviceError
from ondevice_bench.results.result import Row, row
from ondevice_bench.speed.scale.runs import Corpus, done, finish, rows, run, started, wait_until_reading

KINDS = ("worker", "driver", "own node", "other node")
_RAY = "from ray.scripts.scripts import main; main()"
# A process that has had a Ray of its own has in its environment that there is but one node: others would not start.
_CLUSTER = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "1",
    "RAY_AUTH_MODE": "token",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",  # as docs/scale.md says
}
_STARTED = b"Ray runtime started."  # what a node says once it is there
_START_SECONDS = 120.0
_NODE_BYTES = "200000000"  # of each node's object store


@dataclass(frozen=True, slots=True)
class Kill:
    """One run in which something was killed, and the run after it where it did not go on by itself.

    Attributes:
        kind: what was killed.
        lost: documents without a row, or without a pot.
        twice: documents with more than one row, or that were done and were read again.
        done_before: documents that were done when it happened.
        went_on: whether the same run finished; else the command was given again.
        seconds: from the kill to the end.
    """

    kind: str
    lost: int
    twice: int
    done_before: int
    went_on: bool
    seconds: float


def kill_one(corpus: Corpus, kind: str, folder: Path) -> Kill:
    """Kill one thing while documents are read, and see all of them done.

    Raises:
        OndeviceError: the run was over before that, or the one after the kill failed.
    """
    out, log = folder / "out", folder / "batch.log"
    folder.mkdir(parents=True)
    if kind == "other node":
        before, began = _kill_other_node(corpus, out, log)
        went_on = True
    else:
        with started(corpus.command(out, "--engines", "1", "--cpus-per-engine", "1"), log) as process:
            engine = wait_until_reading(process, out)
            before, began = done(out), time.perf_counter()
            victim = {"worker": engine, "driver": process, "own node": _raylet(process)}[kind]
            victim.kill()
            went_on = kind == "worker"
            if went_on:
                finish(process, log)
            else:
                process.wait()
    if not went_on:
        run(corpus, out, "--engines", "1", "--cpus-per-engine", "1")
    return _judged(kind, corpus, out, before, went_on, time.perf_counter() - began)


def rows_of(kills: list[Kill]) -> list[Row]:
    """Rows of a result."""
    found = []
    for kill in kills:
        case = {"killed": kill.kind, "done before": kill.done_before, "went on": kill.went_on}
        found += [
            row("batch", case, "documents lost", "documents", [kill.lost]),
            row("batch", case, "documents done twice", "documents", [kill.twice]),
            row("batch", case, "from the kill to the end", "s", [kill.seconds]),
        ]
    return found


def _judged(kind: str, corpus: Corpus, out: Path, before: dict[str, int], went_on: bool, seconds: float) -> Kill:
    counts = Counter(one["id"] for one in rows(out) if one["error"] is None and (out / one["pot"]).is_file())
    after = done(out)
    again = {id for id, when in before.items() if after.get(id) != when}
    twice = len(again | {id for id, count in counts.items() if count > 1})
    return Kill(kind, corpus.num_documents - len(counts), twice, len(before), went_on, seconds)


def _raylet(process: psutil.Process) -> psutil.Process:
    return next(child for child in process.children(recursive=True) if child.name() == "raylet")


def _kill_other_node(corpus: Corpus, out: Path, log: Path) -> tuple[dict[str, int], float]:
    """Two nodes, an engine on each, of which the one without the command is killed; the other has room for both."""
    cluster = _CLUSTER | {"RAY_AUTH_TOKEN": secrets.token_hex(32)}
    with socket.socket() as free:
        free.bind(("", 0))
        port = free.getsockname()[1]
    address = f"{socket.gethostbyname(socket.gethostname())}:{port}"
    first, second = log.with_name("node.log"), log.with_name("other-node.log")
    with (
        _node(["--head", f"--port={port}", "--num-cpus=5", "--include-dashboard=false"], first, cluster),
        # As much room as on the first: where a page is being parsed on its only core, the engine would go there.
        _node([f"--address={address}", "--num-cpus=5"], second, cluster) as other,
    ):
        options = ("--address", address, "--engines", "2", "--cpus-per-engine", "1")
        with started(corpus.command(out, *options), log, cluster) as process:
            wait_until_reading(process, out, other)
            before, began = done(out), time.perf_counter()
            _raylet(other).kill()
            finish(process, log)
    return before, began


@contextmanager
def _node(options: list[str], log: Path, environment: dict[str, str]) -> Iterator[psutil.Process]:
    """A node of Ray for as long as the block runs."""
    command = [sys.executable, "-c", _RAY, "start", "--block", f"--object-store-memory={_NODE_BYTES}", *options]
    with started(command, log, environment) as process:
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline and process.poll() is None:
            if _STARTED in log.read_bytes():
                yield process
                return
            time.sleep(0.2)
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        raise OndeviceError(f"A node of Ray did not start: {' '.join(lines[-3:])}", where=str(log), fix="See the log.")
