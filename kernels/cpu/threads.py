"""The threads that compiled kernels run in: torch's own where it works with OpenMP, else a pool."""

from __future__ import annotations

import ctypes
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any


def run_in_threads(kernel: Any, call: bytes, num_threads: int) -> None:
    """Run the kernel in that many threads, or in fewer: those that there are do all the work."""
    fork = _openmp_fork()
    if num_threads == 1:
        kernel(call)
    elif fork is not None:
        fork(kernel, call, num_threads, 0)
    else:
        helpers = [_pool(num_threads - 1).submit(kernel, call) for _ in range(num_threads - 1)]
        kernel(call)
        for helper in helpers:
            if not helper.cancel():
                helper.result()


@cache
def _openmp_fork() -> Any:
    """`GOMP_parallel` of the library whose threads torch works with; None where torch has none, or another.

    A pool of our own would compete with torch's, whose threads go on spinning for a while after every operation.
    """
    fork = getattr(ctypes.CDLL(None), "GOMP_parallel", None) if sys.platform == "linux" else None
    if fork is not None:
        fork.argtypes, fork.restype = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint, ctypes.c_uint), None
    return fork


@cache
def _pool(num_threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(num_threads, thread_name_prefix="kernel")
