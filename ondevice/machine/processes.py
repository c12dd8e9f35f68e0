"""Work in a process of its own, so that its memory is that of this work alone."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import psutil

from ondevice.errors import ModelError

_LAST_LINES = 3
_P = ParamSpec("_P")
_R = TypeVar("_R")


def in_its_own_process(work: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> _R:
    """`work(...)` in a fresh interpreter, which ends afterwards; raises what it raises.

    Raises:
        BrokenProcessPool: the system ended the process.
    """
    return within(None, work, *args, **kwargs)


def within(seconds: float | None, work: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> _R:
    """As `in_its_own_process`, for so long at most.

    Raises:
        TimeoutError: it took longer, and was ended.
        BrokenProcessPool: the system ended the process.
    """
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        worker = pool.submit(os.getpid).result()
        future = pool.submit(work, *args, **kwargs)
        try:
            return future.result(seconds)
        except TimeoutError:
            if not future.done():
                process = psutil.Process(worker)
                for one in [*process.children(recursive=True), process]:
                    one.kill()
            raise


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
