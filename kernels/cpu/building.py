"""Compiles kernels: their entries, which threads call with the address of the arguments, and what those call."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from numba import cfunc, njit, types

jit = njit(no_cpython_wrapper=True, no_cfunc_wrapper=True)  # of what is called by the kernel alone
_OF_AN_ADDRESS = types.void(types.voidptr)


class Kernel(NamedTuple):
    """A compiled function: its address, and as ctypes calls it; kernels with the bytes of their arguments."""

    address: int
    run: Any
    compiled: Any


def built(work: Any, signature: Any = _OF_AN_ADDRESS, arguments: Iterable[Any] = (ctypes.c_char_p,)) -> Kernel:
    """`work`, compiled; later processes find it in Numba's cache, under the numbers that `work` closes over.

    It may close over nothing else: the cache's key is their pickle, and that of a compiled function differs each time.
    """
    cells = work.__closure__ or ()
    assert all(isinstance(cell.cell_contents, (int, float, bool)) for cell in cells), "it would be compiled every time"
    try:
        compiled = cfunc(signature, cache=True)(work)
    except RuntimeError:  # no folder to keep it in
        compiled = cfunc(signature)(work)
    return Kernel(compiled.address, ctypes.CFUNCTYPE(None, *arguments)(compiled.address), compiled)


def last_change(parts: Iterable[ModuleType]) -> int:
    """When the newest of the files changed that a kernel is made of; Numba itself looks only at the file of `work`."""
    return max(Path(str(part.__file__)).stat().st_mtime_ns for part in parts)
