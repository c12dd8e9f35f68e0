"""Work in a process of its own, so that its memory is that of this work alone."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import ParamSpec, TypeVar

import psutil

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
