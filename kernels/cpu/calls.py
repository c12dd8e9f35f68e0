"""Calls of kernels that are laid out once, in memory of their own, and run again and again without Python between."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from ondevice.kernels.cpu.threads import run_calls


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """A kernel with its arguments.

    Attributes:
        kernel: its address.
        arguments: in memory, an array of one record or of bytes; the kernel is given its address.
        is_shared: whether helper threads work on it, too.
        zeroed: address and number of bytes, whole times 8, of what is to be 0 before it.
        kept: what the arguments point to and nobody else holds.
    """

    kernel: int
    arguments: np.ndarray[Any, Any]
    is_shared: bool = False
    zeroed: tuple[int, int] = (0, 0)
    kept: tuple[Any, ...] = ()


class Sequence:
    """Calls one after the other."""

    def __init__(self, calls: Iterable[Call]) -> None:
        self._calls = list(calls)
        rows = [(call.kernel, call.arguments.ctypes.data, call.is_shared, *call.zeroed) for call in self._calls]
        self._table = np.array(rows, np.int64)

    def run(self, num_threads: int) -> None:
        """Run them all, those that are shared in up to so many threads."""
        run_calls(self._table.ctypes.data, len(self._calls), num_threads)
