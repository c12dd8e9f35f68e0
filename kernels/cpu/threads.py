"""The threads that compiled kernels run in: helpers of our own, torch's where it works with OpenMP, or a pool.

The environment variable KERNELS_THREADS decides: `openmp` is without helpers, `auto` (the default) with them.
"""

from __future__ import annotations

import ctypes
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

from ondevice.kernels.backend import chosen

THREADS_CHOICES = ("auto", "openmp")


class _Last:
    """Who ran the last product of a few tokens: the helpers, or torch's threads, which go on spinning for a while."""

    was_helped = False


def run_in_threads(kernel: Any, call: bytes, num_threads: int, *, is_short: bool = False) -> None:
    """Run the kernel in that many threads, or in fewer: those that there are do all the work.

    Args:
        is_short: one of hundreds that a token waits for, between which torch's threads have nothing to do: helpers
            run it. Elsewhere torch's threads do, for they go on spinning after each of its operations.

    Raises:
        ValueError: KERNELS_THREADS has an unknown value.
    """
    if num_threads == 1:
        kernel(call)
    elif is_short and takes_helpers():
        _Last.was_helped = True
        _helpers()().run(kernel, call, num_threads)
    elif (fork := _openmp_fork()) is not None:
        fork(kernel, call, num_threads, 0)
    else:
        others = [_pool(num_threads - 1).submit(kernel, call) for _ in range(num_threads - 1)]
        kernel(call)
        for other in others:
            if not other.cancel():
                other.result()


def run_calls(calls: int, num_calls: int, num_threads: int) -> None:
    """Run calls one after the other, each in up to that many helpers where it may be shared; see `calls`.

    Raises:
        ValueError: KERNELS_THREADS has an unknown value.
    """
    assert takes_helpers()
    _Last.was_helped = True
    _helpers()().run_calls(calls, num_calls, num_threads)


def prepare_helpers() -> None:
    """Compile what short kernels run in, where helpers are taken for them; none is started yet."""
    if takes_helpers():
        _helpers()()


def are_helping() -> bool:
    """True if short kernels are best run in helpers of our own: the products around them are."""
    return _Last.was_helped and takes_helpers()


def torch_has_worked() -> None:
    """Note that torch's threads ran the last product: helpers beside them would wait for a core."""
    _Last.was_helped = False


def takes_helpers() -> bool:
    """True if there are helpers of our own.

    Raises:
        ValueError: KERNELS_THREADS has an unknown value.
    """
    return chosen("KERNELS_THREADS", THREADS_CHOICES) == "auto" and _helpers() is not None


@cache
def _helpers() -> Any:
    """Gives the helpers of this process; None where there can be none."""
    from ondevice.kernels.cpu import helpers

    return helpers.helpers if helpers.IS_AVAILABLE else None


@cache
def _openmp_fork() -> Any:
    """`GOMP_parallel` of the library whose threads torch works with; None where torch has none, or another."""
    fork = getattr(ctypes.CDLL(None), "GOMP_parallel", None) if sys.platform == "linux" else None
    if fork is not None:
        fork.argtypes, fork.restype = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint, ctypes.c_uint), None
    return fork


@cache
def _pool(num_threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(num_threads, thread_name_prefix="kernel")
