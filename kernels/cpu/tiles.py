"""One block of keys and values in the decode attention on a CPU: scores, their softmax, the weighted values."""

from __future__ import annotations

from llvmlite import ir
from numba.core import cgutils
from ondevice.kernels.cpu.vectors import (
    F32,
    I32,
    I64,
    INTEGERS,
    IS_WIDE,
    LANES,
    SIZES,
    VECTOR,
    Builder,
    constant,
    kernel_part,
)

_SLOTS = 2  # keys that meet a row of queries while that is at hand
_REGISTERS = 32 if IS_WIDE else 16


@kernel_part(num_numbers=1, num_literals=3, has_rows=True)
def scores_of_tile(
    b: Builder,
    query: ir.Value,
    keys: ir.Value,
    key_stride: ir.Value,
    last: ir.Value,
    values: ir.Value,
    value_stride: ir.Value,
    scores: ir.Value,
    row_stride: ir.Value,
    scale: ir.Value,
    num_here: int,
    num_rows: int,
    head_dim: int,
    kind: int,
) -> None:
    """scores[row, 0:LANES] = scale * query[row] . keys[slot]; slots after `last` repeat it. Strides are in bytes.

    The slots' values, which come next, are fetched meanwhile.
    """
    chunks = [(4 * at, min(LANES, head_dim - at)) for at in range(0, head_dim, LANES)]
    products: list[list[ir.Value]] = [[] for _ in range(num_here)]
    for first in range(0, LANES, _SLOTS):
        together = list[ir.Value]()
        for slot in range(first, first + _SLOTS):
            index = ir.Constant(I64, slot)
            clipped = b.select(b.icmp_signed("<", index, last), index, last)
            b.fetch(b.add(values, b.mul(clipped, value_stride)), head_dim, kind)
            together.append(b.add(keys, b.mul(clipped, key_stride)))
        sums = [[constant(0.0)] * _SLOTS for _ in range(num_here)]
        for at, lanes in chunks:
            parts = [b.read(key, at * SIZES[kind] // 4, lanes, kind) for key in together]
            for row, row_sums in enumerate(sums):
                number = b.read(query, 4 * head_dim * row + at, lanes)
                sums[row] = [
                    b.in_order(b.fma(part, number, total)) for part, total in zip(parts, row_sums, strict=True)
                ]
        for row, row_sums in enumerate(sums):
            products[row] += row_sums
    for row in range(num_here):
        scaled = b.fmul(b.lane_sums(products[row]), b.splat(scale))
        b.write(scaled, b.add(scores, b.mul(row_stride, ir.Constant(I64, row))))


@kernel_part()
def hide_from(b: Builder, scores: ir.Value, limit: ir.Value) -> None:
    """scores[limit:LANES] = -inf."""
    lanes = ir.Constant(INTEGERS, list(range(LANES)))
    seen = b.icmp_signed("<", lanes, b.splat(b.trunc(limit, I32)))
    b.write(b.select(seen, b.read(scores), constant(float("-inf"))), scores)


@kernel_part()
def soften(b: Builder, scores: ir.Value, num_tiles: ir.Value, maximum: ir.Value, total: ir.Value) -> None:
    """Of one row: *maximum = max(scores); scores = exp(scores - maximum); *total = sum of these."""
    size = ir.Constant(I64, 4 * LANES)
    state = cgutils.alloca_once(b, VECTOR)
    b.store(constant(float("-inf")), state)
    with cgutils.for_range(b, num_tiles) as loop:
        tile = b.add(scores, b.mul(loop.index, size))
        b.store(b.larger(b.load(state), b.read(tile)), state)
    highest = b.across(b.load(state), b.larger)
    b.store(highest, b.inttoptr(maximum, F32.as_pointer()))
    base = b.splat(highest)
    b.store(constant(0.0), state)
    with cgutils.for_range(b, num_tiles) as loop:
        tile = b.add(scores, b.mul(loop.index, size))
        weights = b.exp(b.fsub(b.read(tile), base))
        b.write(weights, tile)
        b.store(b.fadd(b.load(state), weights), state)
    b.store(b.across(b.load(state), b.fadd), b.inttoptr(total, F32.as_pointer()))


@kernel_part(num_literals=3, has_rows=True)
def weigh(
    b: Builder,
    weights: ir.Value,
    row_stride: ir.Value,
    values: ir.Value,
    value_stride: ir.Value,
    num_slots: ir.Value,
    next_keys: ir.Value,
    key_stride: ir.Value,
    out: ir.Value,
    num_here: int,
    num_rows: int,
    head_dim: int,
    kind: int,
) -> None:
    """out[row] = sum over the slots of weights[row, slot] * values[slot], in rows of whole vectors.

    As many keys of the block that is to come are fetched meanwhile.
    """
    chunks = [(at, min(LANES, head_dim - at)) for at in range(0, head_dim, LANES)]
    most = (_REGISTERS - 1) // (num_here + 1)  # sums and numbers of all rows, beside a weight, stay there
    size = -(-len(chunks) // -(-len(chunks) // most))
    rows = [b.add(weights, b.mul(row_stride, ir.Constant(I64, row))) for row in range(num_here)]
    for first in range(0, len(chunks), size):
        some = chunks[first : first + size]
        sums = [[cgutils.alloca_once(b, VECTOR) for _ in some] for _ in rows]
        for row_sums in sums:
            for slot_sum in row_sums:
                b.store(constant(0.0), slot_sum)
        with cgutils.for_range(b, num_slots) as loop:
            value = b.add(values, b.mul(loop.index, value_stride))
            parts = [b.read(value, at * SIZES[kind], lanes, kind) for at, lanes in some]
            if first == 0:
                b.fetch(b.add(next_keys, b.mul(loop.index, key_stride)), head_dim, kind)
            offset = b.mul(loop.index, ir.Constant(I64, 4))
            for row, row_sums in zip(rows, sums, strict=True):
                weight = b.splat(b.load(b.inttoptr(b.add(row, offset), F32.as_pointer()), align=4))
                for part, slot_sum in zip(parts, row_sums, strict=True):
                    b.store(b.fma(part, weight, b.load(slot_sum)), slot_sum)
        for row, row_sums in enumerate(sums):
            for (at, _), slot_sum in zip(some, row_sums, strict=True):
                b.write(b.load(slot_sum), out, 4 * (LANES * len(chunks) * row + at))
