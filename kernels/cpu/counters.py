"""Single numbers in the decode attention on a CPU: those of one thread, and those that threads share."""

from __future__ import annotations

import ctypes
import sys

from llvmlite import ir
from numba.core import cgutils, types
from ondevice.kernels.cpu.vectors import F32, I1, I32, I64, Builder, kernel_part

_SPINS = 2000
# POSIX. LLVM itself knows the symbols of the process only once it has compiled something.
_CAN_YIELD = sys.platform != "win32" and hasattr(ctypes.PyDLL(None), "sched_yield")


@kernel_part(num_numbers=1)
def write_number(b: Builder, address: ir.Value, number: ir.Value) -> None:
    b.store(number, b.inttoptr(address, F32.as_pointer()), align=4)


@kernel_part(result=types.float32)
def read_number(b: Builder, address: ir.Value) -> ir.Value:
    return b.load(b.inttoptr(address, F32.as_pointer()), align=4)


@kernel_part(result=types.int64)
def read_integer(b: Builder, address: ir.Value) -> ir.Value:
    """An int32."""
    return b.sext(b.load(b.inttoptr(address, I32.as_pointer()), align=4), I64)


@kernel_part()
def write_integer(b: Builder, address: ir.Value, number: ir.Value) -> None:
    """An int32."""
    b.store(b.trunc(number, I32), b.inttoptr(address, I32.as_pointer()), align=4)


@kernel_part(result=types.int64)
def draw(b: Builder, counter: ir.Value) -> ir.Value:
    """The next number of an int64 that threads count on together."""
    return b.atomic_rmw("add", b.inttoptr(counter, I64.as_pointer()), ir.Constant(I64, 1), "acq_rel")


@kernel_part(result=types.int64)
def look_at(b: Builder, counter: ir.Value) -> ir.Value:
    """An int64 that another thread sets; what was written before that is seen."""
    return b.load_atomic(b.inttoptr(counter, I64.as_pointer()), ordering="acquire", align=8)


@kernel_part()
def set_to(b: Builder, counter: ir.Value, number: ir.Value) -> None:
    b.store_atomic(number, b.inttoptr(counter, I64.as_pointer()), ordering="release", align=8)


@kernel_part()
def wait_for(b: Builder, counter: ir.Value, number: ir.Value) -> None:
    """Wait until an int64 that another thread sets is not below `number`.

    That takes no longer than a block, unless the other thread has lost its core: then this one offers its own.
    """
    spins = cgutils.alloca_once_value(b, ir.Constant(I64, 0))
    loop, done = b.append_basic_block("wait"), b.append_basic_block("reached")
    yielding = b.append_basic_block("yield")
    again = b.append_basic_block("again")
    b.branch(loop)
    b.position_at_end(loop)
    seen = b.load_atomic(b.inttoptr(counter, I64.as_pointer()), ordering="acquire", align=8)
    spin = b.add(b.load(spins), ir.Constant(I64, 1))
    b.store(spin, spins)
    b.cbranch(b.icmp_signed(">=", seen, number), done, again)
    b.position_at_end(again)
    is_long = b.icmp_unsigned(">", spin, ir.Constant(I64, _SPINS))
    b.cbranch(b.and_(is_long, ir.Constant(I1, _CAN_YIELD)), yielding, loop)
    b.position_at_end(yielding)
    if _CAN_YIELD:
        b.call_function("sched_yield", I32, [])
    b.branch(loop)
    b.position_at_end(done)
