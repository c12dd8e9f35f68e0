"""One block of quantised keys and values on a CPU: made wide, and keys rotated, before the tiles take them."""

from __future__ import annotations

import math

import torch
from llvmlite import ir
from numba.core import cgutils, types
from ondevice.kernels.codes import Coded, Frame
from ondevice.kernels.cpu.vectors import (
    F32,
    I32,
    I64,
    INT4,
    INT8,
    INT8_INT4,
    LANES,
    LINE_BYTES,
    Builder,
    constant,
    kernel_part,
)
from ondevice.kernels.quantize import num_groups
from torch import Tensor

_F16 = ir.HalfType()
_KINDS = {(torch.int8, torch.int8): INT8, (torch.uint8, torch.uint8): INT4, (torch.int8, torch.uint8): INT8_INT4}

# What kernels are told beside the codes: scales of all slots, the frame of the keys, where the slots stand, and angles.
ARGUMENTS = (
    *("key_scales", "key_scales_batch", "key_scales_head", "value_scales", "value_scales_batch", "value_scales_head"),
    *("key_scale_bytes", "value_scale_bytes", "offsets", "gains"),
    *("places", "places_batch", "places_head", "cosines", "sines"),
)
NO_CODES = (0,) * len(ARGUMENTS)


def kind_of(coded: Coded) -> int:
    """The kind, as `vectors` names it, that keys and values are stored as."""
    return _KINDS[coded.keys.dtype, coded.values.dtype]


def readable(coded: Coded, cos: Tensor, sin: Tensor) -> tuple[Coded, Tensor, Tensor]:
    """The same with the frame and the tables as kernels read them: tables in float32, everything contiguous."""
    frame = Frame(*(part.contiguous() for part in coded.frame))
    return coded._replace(frame=frame), cos.float().contiguous(), sin.float().contiguous()


def arguments_of(coded: Coded, positions: Tensor, cosines: int, sines: int) -> tuple[int, ...]:
    """The numbers of `ARGUMENTS`: addresses, and strides in bytes; what the frame is made of is contiguous."""
    scales = coded.key_scales, coded.value_scales
    return (
        *address_and_strides(coded.key_scales),
        *address_and_strides(coded.value_scales),
        *(each.stride(2) * each.element_size() for each in scales),
        coded.frame.mean.data_ptr(),
        coded.frame.spread.data_ptr(),
        *address_and_strides(positions),
        cosines,
        sines,
    )


def address_and_strides(tensor: Tensor | None) -> tuple[int, int, int]:
    """Of (batch or 1, kv_heads or 1, n), or (..., n, m); a row that serves all has no stride."""
    if tensor is None:
        return 0, 0, 0
    size = tensor.element_size()
    assert tensor.stride(2) == math.prod(tensor.shape[3:]) or tensor.shape[2] == 1
    batch_stride, head_stride = (size * tensor.stride(i) if tensor.shape[i] > 1 else 0 for i in (0, 1))
    return tensor.data_ptr(), batch_stride, head_stride


@kernel_part(num_literals=2)
def widen_keys(
    b: Builder,
    codes: ir.Value,
    stride: ir.Value,
    scales: ir.Value,
    offsets: ir.Value,
    gains: ir.Value,
    places: ir.Value,
    base: ir.Value,
    cosines: ir.Value,
    sines: ir.Value,
    num_slots: ir.Value,
    out: ir.Value,
    head_dim: int,
    kind: int,
) -> None:
    """out[slot] = RoPE(offsets + gains * wide codes[slot]) at places[slot] - base, float32; all of a key turns.

    Strides are in bytes; cosines and sines have rows of head_dim float32.
    """
    half = head_dim // 2
    chunks = [(at, min(LANES, half - at)) for at in range(0, half, LANES)]
    row = ir.Constant(I64, 4 * head_dim)
    with cgutils.for_range(b, num_slots) as loop:
        wide = _Vector(b, codes, stride, scales, loop.index, head_dim, INT8 if kind == INT8_INT4 else kind)
        place = b.sub(b.sext(b.number_at(places, loop.index, I32), I64), base)
        angle = b.mul(place, row)
        to, cos, sin = b.add(out, b.mul(loop.index, row)), b.add(cosines, angle), b.add(sines, angle)
        for at, lanes in chunks:
            first, second = (
                b.fma(number, b.read(gains, 4 * start, lanes), b.read(offsets, 4 * start, lanes))
                for number, start in zip(wide.numbers(at, lanes), (at, half + at), strict=True)
            )
            # Both halves have the same cosines, and sines but for the sign that the first half has.
            turn, slide = b.read(cos, 4 * at, lanes), b.read(sin, 4 * (half + at), lanes)
            b.write(b.fsub(b.fmul(first, turn), b.fmul(second, slide)), to, 4 * at, lanes)
            b.write(b.fma(first, slide, b.fmul(second, turn)), to, 4 * (half + at), lanes)


@kernel_part(result=types.int64)
def lowest(b: Builder, places: ir.Value, num_slots: ir.Value) -> ir.Value:
    """The smallest of some int32 numbers."""
    state = cgutils.alloca_once(b, I32)
    b.store(b.number_at(places, ir.Constant(I64, 0), I32), state)
    with cgutils.for_range(b, num_slots) as loop:
        place, least = b.number_at(places, loop.index, I32), b.load(state)
        b.store(b.select(b.icmp_signed("<", place, least), place, least), state)
    return b.sext(b.load(state), I64)


@kernel_part()
def fetch_lines(b: Builder, address: ir.Value, num_bytes: ir.Value) -> None:
    """Have so many bytes on their way."""
    num_lines = b.sdiv(b.add(num_bytes, ir.Constant(I64, LINE_BYTES - 1)), ir.Constant(I64, LINE_BYTES))
    with cgutils.for_range(b, num_lines) as loop:
        b.prefetch(b.advanced(address, LINE_BYTES, loop.index), 0, LINE_BYTES)


@kernel_part(num_literals=1)
def turn_back(
    b: Builder,
    query: ir.Value,
    cosines: ir.Value,
    sines: ir.Value,
    base: ir.Value,
    num_rows: ir.Value,
    out: ir.Value,
    head_dim: int,
) -> None:
    """out[row] = query[row] turned back by the angles of `base`: what keys are turned by from there has the same score.

    So a block of neighbours needs as many rows of the tables as it has slots, the same ones as every other block. Where
    tables hold cosines and sines times a number, the keys bring it along.
    """
    half = head_dim // 2
    row_bytes = ir.Constant(I64, 4 * head_dim)
    angle = b.mul(base, row_bytes)
    cos, sin = b.add(cosines, angle), b.add(sines, angle)
    for at in range(0, half, LANES):
        lanes = min(LANES, half - at)
        # At 0 the cosine is 1.
        share = b.fdiv(constant(1.0), b.read(cosines, 4 * at, lanes))
        turn, slide = b.fmul(b.read(cos, 4 * at, lanes), share), b.fmul(b.read(sin, 4 * (half + at), lanes), share)
        with cgutils.for_range(b, num_rows) as loop:
            row, to = (b.add(start, b.mul(loop.index, row_bytes)) for start in (query, out))
            first, second = b.read(row, 4 * at, lanes), b.read(row, 4 * (half + at), lanes)
            b.write(b.fma(first, turn, b.fmul(second, slide)), to, 4 * at, lanes)
            b.write(b.fsub(b.fmul(second, turn), b.fmul(first, slide)), to, 4 * (half + at), lanes)


@kernel_part(num_literals=2)
def widen_values(
    b: Builder,
    codes: ir.Value,
    stride: ir.Value,
    scales: ir.Value,
    num_slots: ir.Value,
    out: ir.Value,
    head_dim: int,
    kind: int,
) -> None:
    """out[slot] = wide codes[slot], float32."""
    half = head_dim // 2
    with cgutils.for_range(b, num_slots) as loop:
        wide = _Vector(b, codes, stride, scales, loop.index, head_dim, INT4 if kind == INT8_INT4 else kind)
        to = b.add(out, b.mul(loop.index, ir.Constant(I64, 4 * head_dim)))
        for at in range(0, half, LANES):
            lanes = min(LANES, half - at)
            for number, start in zip(wide.numbers(at, lanes), (at, half + at), strict=True):
                b.write(number, to, 4 * start, lanes)


class _Vector:
    """One quantised vector."""

    def __init__(
        self,
        b: Builder,
        codes: ir.Value,
        stride: ir.Value,
        scales: ir.Value,
        index: ir.Value,
        head_dim: int,
        kind: int,
    ) -> None:
        self._b, self._codes, self._half = b, b.add(codes, b.mul(index, stride)), head_dim // 2
        self._scale: ir.Value | None = None
        if kind == INT8:
            self._scale = b.splat(b.number_at(scales, index, F32))
            return
        groups = num_groups(head_dim)
        self._group_size = head_dim // groups
        row = b.add(scales, b.mul(index, ir.Constant(I64, 4 * groups)))
        # Step and smallest number of each group, two bytes each.
        self._steps, self._lows = (
            [b.splat(self._of_group(row, 4 * group + at)) for group in range(groups)] for at in (0, 2)
        )

    def numbers(self, at: int, lanes: int) -> tuple[ir.Value, ir.Value]:
        """Some numbers of the first half, and those half a vector further on."""
        b, starts = self._b, (at, self._half + at)
        if self._scale is not None:
            first, second = (b.fmul(b.read_codes(self._codes, start, lanes), self._scale) for start in starts)
            return first, second
        groups = [start // self._group_size for start in starts]
        first, second = (
            b.fma(code, self._steps[group], self._lows[group])
            for code, group in zip(b.read_halves(self._codes, at, lanes), groups, strict=True)
        )
        return first, second

    def _of_group(self, row: ir.Value, offset: int) -> ir.Value:
        b = self._b
        return b.fpext(b.load(b.pointer_to(row, offset, _F16), align=2), F32)
