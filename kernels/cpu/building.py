"""Compiles kernels: their entries, which threads call with the address of the arguments, and what those call."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from numba import cfunc, njit, types

jit = njit(no_cpython_wrapper=True, no_cfunc_wrapper=True)  # of what is called by the kernel alone
_OF_AN_ADDRESS = types.void(types.voidptr)


def built(work: Any, signature: Any = _OF_AN_ADDRESS) -> Any:
    """`work`, compiled; later processes find it in Numba's cache, under the numbers that `work` closes over.

    It may close over nothing else: the cache's key is their pickle, and that of a compiled function differs each time.
    """
    cells = work.__closure__ or ()
    assert all(isinstance(cell.cell_contents, (int, float, bool)) for cell in cells), "it would be compiled every time"
    try:
        return cfunc(signature, cache=True)(work)
    except RuntimeError:  # no folder to keep it in
        return cfunc(signature)(work)


def last_change(parts: Iterable[ModuleType]) -> int:
    """When the newest of the files changed that a kernel is made of; Numba itself looks only at the file of `work`."""
    return max(Path(str(part.__file__)).stat().st_mtime_ns for part in parts)
