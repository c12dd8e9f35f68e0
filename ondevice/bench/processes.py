"""Work in a process of its own, so that its memory is that of this work alone."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_R = TypeVar("_R")


def in_its_own_process(work: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> _R:
    """`work(...)` in a fresh interpreter, which ends afterwards; raises what it raises.

    Raises:
        BrokenProcessPool: the system ended the process.
    """
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(work, *args, **kwargs).result()
