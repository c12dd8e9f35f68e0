"""The first process after set-up beside the second one: what it still has to compile, a user waits for."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from ondevice_bench.speed.peer_work import OURS, Task, work
from ondevice_bench.speed.processes import within

COMPILES = Path(__file__).resolve().parents[2] / "scripts" / "compile_kernels.py"  # what set-up runs
_CACHE = "NUMBA_CACHE_DIR"


def seconds_of_first_processes(task: Task) -> tuple[float, float]:
    """Seconds of our first and second process that does a task, each from its start to its end.

    The cache of compiled kernels is new, and holds what set-up compiles.
    """
    before = os.environ.get(_CACHE)
    with TemporaryDirectory() as folder:
        os.environ[_CACHE] = folder
        try:
            subprocess.run([sys.executable, str(COMPILES)], check=True)
            return _seconds(task), _seconds(task)
        finally:
            os.environ.pop(_CACHE)
            if before is not None:
                os.environ[_CACHE] = before


def _seconds(task: Task) -> float:
    began = time.perf_counter()
    within(None, work, OURS, task)
    return time.perf_counter() - began
