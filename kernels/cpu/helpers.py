"""Helper threads for kernels that take microseconds: whoever has lost its core is not waited for.

A region of OpenMP ends when every thread of the team has come, and threads that wait go on spinning. Where other
programs want the cores, too, a thread that spins may have the core of the one that it waits for: each of the hundreds
of products of a token then takes as long as a time slice. Here the caller waits only for helpers that have begun, does
all the work itself where none comes, and helpers go to sleep soon.

Each helper has a line of memory: its state, the kernel to run and its arguments, and a semaphore to sleep at.
"""

# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

import ctypes
import mmap
import os
import sys
import threading
from functools import cache
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba import types
from ondevice.kernels.cpu import counters, vectors
from ondevice.kernels.cpu.building import Kernel, built, jit, last_change
from ondevice.kernels.cpu.counters import look_at, set_to, wait_for
from ondevice.kernels.cpu.vectors import I32, I64, Builder, kernel_part

IS_AVAILABLE = sys.platform == "linux" and hasattr(ctypes.PyDLL(None), "sem_post")

_RUNNING, _IDLE, _ASLEEP, _POSTED = range(-1, 3)  # states; memory begins with zeros
_LINE_BYTES, _KERNEL, _CALL, _SEMAPHORE = 128, 8, 16, 64  # of a helper, and where in its line the parts stand
_MOST_HELPERS = 255
_ROW_BYTES = 40  # of `_run_calls`
# Looks before a helper goes to sleep: longer than Python takes between two products. With 4,000 decoding was slower.
_SPINS = 20000


@kernel_part(result=types.int64)
def _swap(b: Builder, address: ir.Value, number: ir.Value) -> ir.Value:
    """Set an int64; what it was before."""
    return b.atomic_rmw("xchg", b.inttoptr(address, I64.as_pointer()), number, "acq_rel")


@kernel_part(result=types.int64)
def _change(b: Builder, address: ir.Value, before: ir.Value, after: ir.Value) -> ir.Value:
    """Set an int64 to `after` if it is `before`; whether it was."""
    pair = b.cmpxchg(b.inttoptr(address, I64.as_pointer()), before, after, "acq_rel", "acquire")
    return b.zext(b.extract_value(pair, 1), I64)


@kernel_part()
def _run(b: Builder, kernel: ir.Value, call: ir.Value) -> None:
    b.call(b.inttoptr(kernel, ir.FunctionType(ir.VoidType(), [I64]).as_pointer()), [call])


@kernel_part()
def _pause(b: Builder, address: ir.Value) -> None:
    """Let a processor that shares this core go ahead."""
    if llvm.get_process_triple().startswith("x86_64"):
        b.call_function("llvm.x86.sse2.pause", ir.VoidType(), [])


@kernel_part()
def _post(b: Builder, semaphore: ir.Value) -> None:
    b.call_function("sem_post", I32, [b.inttoptr(semaphore, I64.as_pointer())])


@kernel_part()
def _sleep(b: Builder, semaphore: ir.Value) -> None:
    b.call_function("sem_wait", I32, [b.inttoptr(semaphore, I64.as_pointer())])


@jit
def _help(line: int) -> None:
    """Run what is posted, for ever."""
    while True:
        num_looks = 0
        while look_at(line) != _POSTED and num_looks < _SPINS:
            _pause(line)
            num_looks += 1
        if _change(line, _POSTED, _RUNNING) != 0:
            _run(look_at(line + _KERNEL), look_at(line + _CALL))
            set_to(line, _IDLE)
        elif _change(line, _IDLE, _ASLEEP) != 0:
            while look_at(line) == _ASLEEP:  # a signal may wake it, too
                _sleep(line + _SEMAPHORE)


@jit
def _share(kernel: int, call: int, lines: int, num_helpers: int) -> None:
    """Run a kernel in this thread and in the helpers that come while it runs."""
    for i in range(num_helpers):
        line = lines + i * _LINE_BYTES
        set_to(line + _KERNEL, kernel)
        set_to(line + _CALL, call)
        if _swap(line, _POSTED) == _ASLEEP:
            _post(line + _SEMAPHORE)
    _run(kernel, call)
    for i in range(num_helpers):
        line = lines + i * _LINE_BYTES
        if _change(line, _POSTED, _IDLE) == 0:
            wait_for(line, _IDLE)


@jit
def _run_calls(calls: int, num_calls: int, lines: int, num_helpers: int) -> None:
    """Rows of five int64: a kernel, its arguments, whether helpers share it, and what is to be 0 before it."""
    for call in range(calls, calls + _ROW_BYTES * num_calls, _ROW_BYTES):
        zeros = look_at(call + 24)
        for at in range(zeros, zeros + look_at(call + 32), 8):
            set_to(at, 0)
        _share(look_at(call), look_at(call + 8), lines, num_helpers if look_at(call + 16) != 0 else 0)


class Helpers:
    """The helper threads of this process; they are started when they are needed first, and end with it."""

    def __init__(self) -> None:
        # Never given back: helpers look at it until the very end of the process.
        self._memory = mmap.mmap(-1, _MOST_HELPERS * _LINE_BYTES)
        view = ctypes.c_char.from_buffer(self._memory)
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(view))
        self._lines = ctypes.addressof(view)
        self._num_started = 0
        self._help, self._share, self._run_calls = _entry_points()
        self._is_shared = threading.Lock()

    def run(self, kernel: Any, call: bytes, num_threads: int) -> None:
        """Run `kernel(call)` in this thread and in up to `num_threads` - 1 helpers; in this one alone where another
        thread has the helpers."""
        if not self._is_shared.acquire(blocking=False):
            kernel(call)
            return
        try:
            self._share.run(kernel, call, self._lines, self._started(num_threads))
        finally:
            self._is_shared.release()

    def run_calls(self, calls: int, num_calls: int, num_threads: int) -> None:
        """As `run`, for one call after the other; `calls` is the address of such rows as `_run_calls` takes."""
        is_ours = self._is_shared.acquire(blocking=False)
        try:
            self._run_calls.run(calls, num_calls, self._lines, self._started(num_threads) if is_ours else 0)
        finally:
            if is_ours:
                self._is_shared.release()

    def _started(self, num_threads: int) -> int:
        """Number of helpers for so many threads, all of which are there."""
        num_helpers = min(num_threads - 1, _MOST_HELPERS)
        while self._num_started < num_helpers:
            self._start()
        return num_helpers

    def _start(self) -> None:
        line = self._lines + self._num_started * _LINE_BYTES
        if ctypes.CDLL(None).sem_init(ctypes.c_void_p(line + _SEMAPHORE), 0, 0):
            raise OSError("A thread that helps kernels could not be set up")
        name = f"kernel-helper-{self._num_started}"
        threading.Thread(target=self._help.run, args=(line,), name=name, daemon=True).start()
        self._num_started += 1


@cache
def helpers() -> Helpers:
    """Those of this process."""
    return Helpers()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=helpers.cache_clear)  # a process that was forked off has none of the threads


@cache
def _entry_points() -> tuple[Kernel, Kernel, Kernel]:
    """`_help`, `_share` and `_run_calls` as functions that ctypes calls, without Python's lock."""
    parts_changed = last_change((counters, vectors))

    def help_(line):  # type: ignore[no-untyped-def]
        _ = parts_changed  # part of the cache's key
        _help(line)

    def share(kernel, call, lines, num_helpers):  # type: ignore[no-untyped-def]
        _ = parts_changed
        _share(kernel, call, lines, num_helpers)

    def run_calls(calls, num_calls, lines, num_helpers):  # type: ignore[no-untyped-def]
        _ = parts_changed
        _run_calls(calls, num_calls, lines, num_helpers)

    number, four = ctypes.c_int64, types.void(*[types.int64] * 4)
    return (
        built(help_, types.void(types.int64), [number]),
        built(share, four, [ctypes.c_void_p, ctypes.c_char_p, number, number]),
        built(run_calls, four, [number] * 4),
    )
