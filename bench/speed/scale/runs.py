"""Runs of `ondevice batch` in a process of their own, and what they leave behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from ondevice.errors import OndeviceError

_CHILD = "from ondevice.cli import app; app()"
_ENGINE = "ray::MapWorker(Map(Reader"  # how Ray names the process of an engine
_END_SECONDS = 30.0
_POLL_SECONDS = 0.05


@dataclass(frozen=True)
class Corpus:
    """Documents of one length.

    Attributes:
        source: what the command is given.
        num_documents: different ones.
        options: of the command, for the model.
    """

    source: str
    num_documents: int
    options: tuple[str, ...]

    def command(self, out: Path, *more: str) -> list[str]:
        return [sys.executable, "-c", _CHILD, "batch", self.source, "--out", str(out), *self.options, *more]


@contextmanager
def started(command: Sequence[str], log: Path, environment: dict[str, str] | None = None) -> Iterator[psutil.Popen]:
    """A process that is running; what is left of it and its children ends with the block."""
    with log.open("ab") as text:
        process = psutil.Popen(
            command, stdin=subprocess.DEVNULL, stdout=text, stderr=text, env=os.environ | (environment or {})
        )
    try:
        yield process
    finally:
        family = [process, *_children(process)]
        for one in family:
            if one.is_running():
                one.kill()
        psutil.wait_procs(family, _END_SECONDS)


def finish(process: psutil.Popen, log: Path) -> None:
    """Wait for a run; raises OndeviceError where it failed."""
    if process.wait():
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        raise OndeviceError(
            f"A batch ended with status {process.returncode}: {' '.join(lines[-3:])}",
            where=str(log),
            fix="See the log.",
        )


def run(corpus: Corpus, out: Path, *more: str, environment: dict[str, str] | None = None) -> float:
    """One whole run; returns its seconds, those of starting Ray and the engines among them."""
    began, log = time.perf_counter(), out.with_suffix(".log")
    with started(corpus.command(out, *more), log, environment) as process:
        finish(process, log)
    return time.perf_counter() - began


def rows(out: Path) -> list[dict[str, Any]]:
    """The table of documents."""
    return [json.loads(line) for line in (out / "documents.jsonl").read_text(encoding="utf-8").splitlines()]


def rate(documents: Iterable[dict[str, Any]]) -> float:
    """Documents a second from the first beginning to the last end of each worker, over all workers."""
    spans: dict[str, list[tuple[float, float]]] = {}
    for row in documents:
        spans.setdefault(row["worker"], []).append((row["started"], row["started"] + row["seconds"]))
    return sum(len(own) / (max(end for _, end in own) - min(begin for begin, _ in own)) for own in spans.values())


def engines(process: psutil.Process) -> list[psutil.Process]:
    """The processes of engines among the children of a command, or of a node."""
    found = []
    for child in _children(process):
        try:
            if " ".join(child.cmdline()).startswith(_ENGINE):
                found.append(child)
        except psutil.Error:
            continue
    return found


def wait_until_reading(process: psutil.Process, out: Path, node: psutil.Process | None = None) -> psutil.Process:
    """An engine, of that node where one is given, once documents are done and others are being read.

    Raises:
        OndeviceError: the run has ended before.
    """
    while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
        found = engines(node or process)
        if found and done(out) and any((out / "work" / "attempts").glob("*/*")):
            return found[0]
        time.sleep(_POLL_SECONDS)
    raise OndeviceError(
        "A batch was over before it could be killed", where=str(out), fix="Give it more, or longer, documents."
    )


def done(out: Path) -> dict[str, int]:
    """When the pot of each document that is done was written, in nanoseconds, by id."""
    found = {}
    for account in (out / "pots").glob("*.json"):
        pot = account.with_suffix(".pot")
        if pot.is_file():
            found[account.stem] = pot.stat().st_mtime_ns
    return found


def _children(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children(recursive=True)
    except psutil.Error:
        return []
