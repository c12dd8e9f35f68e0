"""Norms, RoPE, the slot in the pot and the gate of one token on a CPU: all that lies between its products."""

# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import torch
from llvmlite import ir
from numba import carray, literally
from numba.core import cgutils
from ondevice.kernels.cpu import vectors
from ondevice.kernels.cpu.building import Kernel, built, jit, last_change
from ondevice.kernels.cpu.calls import Call
from ondevice.kernels.cpu.vectors import F32, I8, I64, INTEGERS, LANES, VECTOR, Builder, constant, kernel_part
from ondevice.kernels.norm import RMSNorm
from torch import Tensor

NORM, GATE, TURN, STORE, STORE_CODES = range(5)
_TINY = float(np.finfo(np.float32).tiny)
# Of each kind of call: addresses, counts and strides in bytes; then a number.
_ARGUMENTS = {
    NORM: ("x", "weight", "out", "num_rows", "size", "eps"),
    GATE: ("gate_up", "out", "size"),
    TURN: ("x", "cosines", "sines", "out", "num_rows"),
    STORE: ("keys", "rotated", "values", "num_heads", "to_keys", "to_rotated", "to_values", "head_stride"),
    STORE_CODES: (
        *("keys", "values", "num_heads", "mean", "spread", "to_keys", "to_values", "head_stride"),
        *("to_key_scales", "to_value_scales", "scale_stride"),
    ),
}
_CALLS = {
    kind: np.dtype([(name, np.float32 if name == "eps" else np.int64) for name in names])
    for kind, names in _ARGUMENTS.items()
}
_NORM, _GATE, _TURN, _STORE, _STORE_CODES = _CALLS.values()


def norm_call(x: Tensor, norm: RMSNorm, out: Tensor) -> Call:
    """out = norm(x), over the last dimension; both (..., size) float32, `out` may be `x`."""
    size = norm.weight.shape[0]
    weight = norm.weight.contiguous()
    return _call(NORM, 0, (weight,), x, weight, out, x.numel() // size, size, norm.eps)


def gate_call(gate_up: Tensor, out: Tensor) -> Call:
    """out (size,) = SiLU(gate) * up of `gate_up` (2 * size,), as `kernels.gated`."""
    return _call(GATE, 0, (), gate_up, out, out.numel())


def turn_call(x: Tensor, out: Tensor) -> Call:
    """out = RoPE(x), (num_rows, dim) both, by the row of a table at "cosines" and "sines", as `kernels.rope`."""
    return _call(TURN, x.shape[1], (), x, 0, 0, out, x.shape[0])


def store_call(keys: Tensor, rotated: Tensor, values: Tensor, head_stride: int) -> Call:
    """Copy (heads, dim) each to "to_keys", "to_rotated" and "to_values", rows `head_stride` bytes apart."""
    return _call(STORE, keys.shape[1], (), keys, rotated, values, keys.shape[0], 0, 0, 0, head_stride)


def store_codes_call(
    keys: Tensor, values: Tensor, mean: Tensor, spread: Tensor, head_stride: int, scale_stride: int
) -> Call:
    """The same in 8 bits, as `kernels.codes.encode`: keys from `mean` on in parts of `spread`, (heads, dim)
    each, to "to_keys" and "to_values", and the scales to "to_key_scales" and "to_value_scales"."""
    sizes = keys.shape[0], mean, spread, 0, 0, head_stride, 0, 0, scale_stride
    return _call(STORE_CODES, keys.shape[1], (mean, spread), keys, values, *sizes)


def prepare(head_dim: int) -> None:
    """Compile all of these; later processes find them in Numba's cache."""
    for kind in _CALLS:
        compiled(kind, 0 if kind in (NORM, GATE) else head_dim)


def suits(head_dim: int) -> bool:
    """True if heads are whole vectors."""
    return head_dim % LANES == 0


def _call(kind: int, head_dim: int, kept: tuple[Tensor, ...], *arguments: Tensor | float) -> Call:
    record = np.zeros(1, _CALLS[kind])
    record[0] = tuple(each.data_ptr() if isinstance(each, torch.Tensor) else each for each in arguments)
    return Call(compiled(kind, head_dim).address, record, kept=kept)


@cache
def compiled(kind: int, head_dim: int) -> Kernel:
    """The kernel of one kind of call; that of norms and gates is for any size."""
    parts_changed = last_change((vectors,))

    def work(call):  # type: ignore[no-untyped-def]
        _ = parts_changed  # part of the cache's key
        if kind == NORM:
            _norm(carray(call, 1, _NORM)[0])
        elif kind == GATE:
            _gate(carray(call, 1, _GATE)[0])
        elif kind == TURN:
            _turn(carray(call, 1, _TURN)[0], head_dim)
        elif kind == STORE:
            _store(carray(call, 1, _STORE)[0], head_dim)
        else:
            _store_codes(carray(call, 1, _STORE_CODES)[0], head_dim)

    return built(work)


@jit
def _norm(call: Any) -> None:
    for row in range(call.num_rows):
        at = 4 * call.size * row
        norm_row(call.x + at, call.weight, call.out + at, call.size, call.eps)


@jit
def _gate(call: Any) -> None:
    gate_row(call.gate_up, call.gate_up + 4 * call.size, call.out, call.size)


@jit
def _turn(call: Any, head_dim: int) -> None:
    literally(head_dim)
    for row in range(call.num_rows):
        at = 4 * head_dim * row
        turn_row(call.x + at, call.cosines, call.sines, call.out + at, head_dim)


@jit
def _store(call: Any, head_dim: int) -> None:
    literally(head_dim)
    for head in range(call.num_heads):
        at, to = 4 * head_dim * head, call.head_stride * head
        copy_row(call.keys + at, call.to_keys + to, head_dim)
        copy_row(call.rotated + at, call.to_rotated + to, head_dim)
        copy_row(call.values + at, call.to_values + to, head_dim)


@jit
def _store_codes(call: Any, head_dim: int) -> None:
    literally(head_dim)
    for head in range(call.num_heads):
        at, to, scale = 4 * head_dim * head, call.head_stride * head, call.scale_stride * head
        key, value = call.keys + at, call.values + at
        from_mean(key, call.mean + at, call.spread + at, head_dim)
        encode_row(key, call.to_keys + to, call.to_key_scales + scale, head_dim)
        encode_row(value, call.to_values + to, call.to_value_scales + scale, head_dim)


@kernel_part(num_numbers=1)
def norm_row(b: Builder, x: ir.Value, weight: ir.Value, out: ir.Value, size: ir.Value, eps: ir.Value) -> None:
    """out = x / sqrt(mean(x^2) + eps) * weight; whole vectors."""
    squares = cgutils.alloca_once_value(b, constant(0.0))
    num_vectors = b.sdiv(size, ir.Constant(I64, LANES))
    with cgutils.for_range(b, num_vectors) as loop:
        vector = b.read(b.advanced(x, 4 * LANES, loop.index))
        b.store(b.fma(vector, vector, b.load(squares)), squares)
    mean = b.fdiv(b.across(b.load(squares), b.fadd), b.sitofp(size, F32))
    root = b.call_function("llvm.sqrt.f32", F32, [b.fadd(mean, eps)])
    factor = b.splat(b.fdiv(ir.Constant(F32, 1.0), root))
    with cgutils.for_range(b, num_vectors) as loop:
        vector, gain = (b.read(b.advanced(each, 4 * LANES, loop.index)) for each in (x, weight))
        b.write(b.fmul(b.fmul(vector, factor), gain), b.advanced(out, 4 * LANES, loop.index))


@kernel_part()
def gate_row(b: Builder, gate: ir.Value, up: ir.Value, out: ir.Value, size: ir.Value) -> None:
    """out = gate / (1 + exp(-gate)) * up; whole vectors."""
    with cgutils.for_range(b, b.sdiv(size, ir.Constant(I64, LANES))) as loop:
        first, second = (b.read(b.advanced(each, 4 * LANES, loop.index)) for each in (gate, up))
        b.write(b.fmul(b.silu(first), second), b.advanced(out, 4 * LANES, loop.index))


@kernel_part(num_literals=1)
def turn_row(b: Builder, x: ir.Value, cosines: ir.Value, sines: ir.Value, out: ir.Value, head_dim: int) -> None:
    """out = RoPE(x); the first half of the sines has its sign already."""
    half = head_dim // 2
    for at in range(0, half, LANES):
        lanes = min(LANES, half - at)
        first, second = (b.read(x, 4 * start, lanes) for start in (at, half + at))
        for start, own, other in ((at, first, second), (half + at, second, first)):
            cos, sin = (b.read(table, 4 * start, lanes) for table in (cosines, sines))
            b.write(b.fma(other, sin, b.fmul(own, cos)), out, 4 * start, lanes)


@kernel_part(num_literals=1)
def copy_row(b: Builder, x: ir.Value, out: ir.Value, head_dim: int) -> None:
    for at in range(0, head_dim, LANES):
        b.write(b.read(x, 4 * at), out, 4 * at)


@kernel_part(num_literals=1)
def from_mean(b: Builder, x: ir.Value, mean: ir.Value, spread: ir.Value, head_dim: int) -> None:
    """x = (x - mean) / spread."""
    for at in range(0, head_dim, LANES):
        number, centre, unit = (b.read(each, 4 * at) for each in (x, mean, spread))
        b.write(b.fdiv(b.fsub(number, centre), unit), x, 4 * at)


@kernel_part(num_literals=1)
def encode_row(b: Builder, x: ir.Value, codes: ir.Value, scale: ir.Value, head_dim: int) -> None:
    """x as bytes times a scale, to the bit as `kernels.quantize.quantize`."""
    starts = range(0, head_dim, LANES)
    largest = constant(0.0)
    for at in starts:
        largest = b.larger(b.call_function(f"llvm.fabs.v{LANES}f32", VECTOR, [b.read(x, 4 * at)]), largest)
    step = b.fdiv(b.across(largest, b.larger), ir.Constant(F32, 127.0))
    b.store(step, b.inttoptr(scale, F32.as_pointer()), align=4)
    divisor = b.larger(b.splat(step), constant(_TINY))
    for at in starts:
        number = b.fdiv(b.read(x, 4 * at), divisor)
        whole = b.fptosi(b.call_function(f"llvm.rint.v{LANES}f32", VECTOR, [number]), INTEGERS)
        code = b.trunc(whole, ir.VectorType(I8, LANES))
        b.store(code, b.inttoptr(b.add(codes, ir.Constant(I64, at)), code.type.as_pointer()), align=1)
