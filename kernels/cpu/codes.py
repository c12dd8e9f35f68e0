"""One block of keys and values in codes on a CPU: made wide, and keys rotated, before the tiles take them."""

from __future__ import annotations

from llvmlite import ir
from numba.core import cgutils
from ondevice.kernels.cpu.vectors import F32, I32, I64, LANES, fma, kernel_part, load, load_codes, splat, store


@kernel_part(num_literals=1)
def widen_keys(
    b: ir.IRBuilder,
    codes: ir.Value,
    stride: ir.Value,
    scales: ir.Value,
    offsets: ir.Value,
    gains: ir.Value,
    places: ir.Value,
    cosines: ir.Value,
    sines: ir.Value,
    num_slots: ir.Value,
    out: ir.Value,
    head_dim: int,
) -> None:
    """out[slot] = RoPE(offsets + gains * scales[slot] * codes[slot]) at places[slot], float32; all of a key turns.

    Strides are in bytes; cosines and sines have rows of head_dim float32.
    """
    half = head_dim // 2
    chunks = [(at, min(LANES, half - at)) for at in range(0, half, LANES)]
    row = ir.Constant(I64, 4 * head_dim)
    with cgutils.for_range(b, num_slots) as loop:
        code, scale = b.add(codes, b.mul(loop.index, stride)), splat(b, _number(b, scales, loop.index))
        place = b.sext(b.load(_address(b, places, loop.index, I32), align=4), I64)
        angle = b.mul(place, row)
        to, cos, sin = b.add(out, b.mul(loop.index, row)), b.add(cosines, angle), b.add(sines, angle)
        for at, lanes in chunks:
            first, second = (_key(b, code, scale, offsets, gains, start, lanes) for start in (at, half + at))
            # Both halves have the same cosines, and sines but for the sign that the first half has.
            turn, slide = load(b, cos, 4 * at, lanes), load(b, sin, 4 * (half + at), lanes)
            store(b, b.fsub(b.fmul(first, turn), b.fmul(second, slide)), to, 4 * at, lanes)
            store(b, fma(b, first, slide, b.fmul(second, turn)), to, 4 * (half + at), lanes)


@kernel_part(num_literals=1)
def widen_values(
    b: ir.IRBuilder,
    codes: ir.Value,
    stride: ir.Value,
    scales: ir.Value,
    num_slots: ir.Value,
    out: ir.Value,
    head_dim: int,
) -> None:
    """out[slot] = scales[slot] * codes[slot], float32."""
    with cgutils.for_range(b, num_slots) as loop:
        code, scale = b.add(codes, b.mul(loop.index, stride)), splat(b, _number(b, scales, loop.index))
        to = b.add(out, b.mul(loop.index, ir.Constant(I64, 4 * head_dim)))
        for at in range(0, head_dim, LANES):
            lanes = min(LANES, head_dim - at)
            store(b, b.fmul(load_codes(b, code, at, lanes), scale), to, 4 * at, lanes)


def _key(
    b: ir.IRBuilder, code: ir.Value, scale: ir.Value, offsets: ir.Value, gains: ir.Value, at: int, lanes: int
) -> ir.Value:
    """Some numbers of a key before RoPE."""
    number = b.fmul(load_codes(b, code, at, lanes), scale)
    return fma(b, number, load(b, gains, 4 * at, lanes), load(b, offsets, 4 * at, lanes))


def _address(b: ir.IRBuilder, row: ir.Value, index: ir.Value, kind: ir.Type) -> ir.Value:
    """Where the number of 4 bytes with this index lies."""
    return b.inttoptr(b.add(row, b.mul(index, ir.Constant(I64, 4))), kind.as_pointer())


def _number(b: ir.IRBuilder, row: ir.Value, index: ir.Value) -> ir.Value:
    return b.load(_address(b, row, index, F32), align=4)
