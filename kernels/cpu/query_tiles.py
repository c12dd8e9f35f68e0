"""Tiles of the attention of many queries on a CPU: some rows of queries times a panel of slots, and what follows.

Keys lie in panels of 64 slots, or of 16, whose numbers of one dimension stand side by side, so that a vector holds one
dimension of some slots, and a product needs no sum across its lanes. Numbers are float32, or pairs of bfloat16 that are
multiplied and added at once.
"""

from __future__ import annotations

from collections.abc import Sequence

import llvmlite.binding as llvm
from llvmlite import ir
from numba.core import cgutils
from ondevice.kernels.cpu.vectors import (
    BFLOAT16,
    F32,
    FLOAT32,
    I16,
    I32,
    I64,
    INTEGERS,
    IS_WIDE,
    LANES,
    VECTOR,
    Builder,
    constant,
    integers,
    kernel_part,
)

ROWS = 6  # of queries in a tile: with a panel's vectors they fill the registers, of which there are 32 or 16
_VECTORS = 4 if IS_WIDE else 2
PANEL_SLOTS = _VECTORS * LANES
PANEL_ROW = 4 * PANEL_SLOTS  # bytes: one dimension, or a pair of them, of a panel's slots

_ROUNDING = 12582912.0  # 1.5 * 2^23: adding it leaves the nearest integer in the lowest bits
_LOWEST_EXPONENT = -126.0  # below, 2^x is no normal number, and counts as 0
# 2^x for |x| <= 1/2, exact at 0, fitted to the least largest error: 9e-8 of it; and 1e-4, a twentieth of bfloat16's.
_POWER = (1.3264727124e-3, 9.6715126448e-3, 5.5507337435e-2, 2.4022242085e-1, 6.9314697760e-1, 1.0)
_ROUGH_POWER = (5.5008930493e-2, 2.4221095947e-1, 6.9328292722e-1, 1.0)

HAS_PAIRS = bool(llvm.get_host_cpu_features().get("avx512bf16"))  # products of bfloat16, added to float32


def _halves(b: Builder, vector: ir.Value) -> ir.Value:
    """float32 rounded to bfloat16, in the upper halves of int32; the lower halves are of no use."""
    bits = b.bitcast(vector, INTEGERS)
    last = b.and_(b.lshr(bits, integers(16)), integers(1))  # ties go to the even one
    return b.add(bits, b.add(last, integers(0x7FFF)))


def _pairs(b: Builder, first: ir.Value, second: ir.Value) -> ir.Value:
    """Lane by lane a pair of bfloat16, the first in the lower half."""
    low = b.lshr(_halves(b, first), integers(16))
    return b.or_(low, b.and_(_halves(b, second), integers(-0x10000)))


def _neighbours(b: Builder, vector: ir.Value) -> ir.Value:
    """Neighbouring lanes as pairs of bfloat16: half as many int32."""
    words = b.trunc(b.lshr(_halves(b, vector), integers(16)), ir.VectorType(I16, LANES))
    return b.bitcast(words, ir.VectorType(I32, LANES // 2))


def _power(b: Builder, x: ir.Value, kind: int) -> ir.Value:
    """2^x for x <= 0, as exactly as `kind` needs it; 0 for -inf."""
    shifted = b.fadd(x, constant(_ROUNDING))
    rest = b.fsub(x, b.fsub(shifted, constant(_ROUNDING)))
    first, *others = _ROUGH_POWER if kind == BFLOAT16 else _POWER
    power = constant(first)
    for coefficient in others:
        power = b.fma(power, rest, constant(coefficient))
    exponent = b.shl(b.bitcast(shifted, INTEGERS), integers(23))
    scaled = b.bitcast(b.add(b.bitcast(power, INTEGERS), exponent), VECTOR)
    return b.select(b.fcmp_ordered("<", x, constant(_LOWEST_EXPONENT)), constant(0.0), scaled)


def _add_product(b: Builder, total: ir.Value, x: ir.Value, y: ir.Value, kind: int) -> ir.Value:
    """total + x * y, of vectors of float32 or of pairs."""
    if kind == BFLOAT16:
        return b.call_function("llvm.x86.avx512bf16.dpbf16ps.512", VECTOR, [total, x, y])
    return b.fma(x, y, total)


def _load_row(b: Builder, address: ir.Value, offset: int, kind: int) -> ir.Value:
    """A vector of float32, or of pairs."""
    return b.load_at(address, offset, INTEGERS if kind == BFLOAT16 else VECTOR)


def _spread(b: Builder, address: ir.Value, offset: int, kind: int) -> ir.Value:
    """A float32, or a pair, in all lanes."""
    return b.splat(b.load_at(address, offset, I32 if kind == BFLOAT16 else F32))


def _sums_of_products(
    b: Builder,
    begun: Sequence[Sequence[ir.Value]],
    num_steps: ir.Value,
    left: tuple[ir.Value, int | ir.Value],
    right: tuple[ir.Value, int],
    kind: int,
) -> list[list[ir.Value]]:
    """begun[row][column] + the sum over the steps of left[row, step] * right[step, column].

    `left` is an address and the bytes between two rows, whose steps stand side by side; `right` an address and the
    bytes between two steps, whose columns do.
    """
    sums = [[cgutils.alloca_once_value(b, value) for value in row] for row in begun]
    address, row_bytes = left
    rows = [b.advanced(address, row_bytes, row) for row in range(len(begun))]
    with cgutils.for_range(b, num_steps) as loop:
        step = b.advanced(right[0], right[1], loop.index)
        columns = [_load_row(b, step, 4 * LANES * column, kind) for column in range(len(begun[0]))]
        offset = b.mul(loop.index, ir.Constant(I64, 4))
        for row, row_sums in zip(rows, sums, strict=True):
            factor = _spread(b, b.add(row, offset), 0, kind)
            for column, total in zip(columns, row_sums, strict=True):
                b.store(_add_product(b, b.load(total), factor, column, kind), total)
    return [[b.load(total) for total in row] for row in sums]


@kernel_part(num_numbers=1, num_literals=2)
def pack_query(b: Builder, query: ir.Value, to: ir.Value, scale: ir.Value, head_dim: int, kind: int) -> None:
    """to = scale * query, of float32, or rounded to pairs."""
    factor = b.splat(scale)
    for at in range(0, head_dim, LANES):
        scaled = b.fmul(b.read(query, 4 * at), factor)
        if kind == BFLOAT16:
            pairs = _neighbours(b, scaled)
            b.store_at(pairs, to, 2 * at)
        else:
            b.write(scaled, to, 4 * at)


@kernel_part(num_literals=2)
def pack_key(b: Builder, key: ir.Value, to: ir.Value, head_dim: int, kind: int) -> None:
    """Put a key, float32, into its column of a panel."""
    size = 2 if kind == BFLOAT16 else 1
    for at in range(0, head_dim, LANES):
        vector = b.read(key, 4 * at)
        numbers = _neighbours(b, vector) if kind == BFLOAT16 else vector
        for lane in range(LANES // size):
            number = b.extract_element(numbers, ir.Constant(I32, lane))
            pointer = b.pointer_to(to, PANEL_ROW * (at // size + lane), number.type)
            b.store(number, pointer, align=4)


@kernel_part(num_literals=1)
def pack_values(b: Builder, first: ir.Value, second: ir.Value, to: ir.Value, head_dim: int) -> None:
    """The values of two slots as pairs of bfloat16, one pair for each dimension."""
    for at in range(0, head_dim, LANES):
        pairs = _pairs(b, b.read(first, 4 * at), b.read(second, 4 * at))
        b.store_at(pairs, to, 4 * at)


@kernel_part(num_literals=2)
def score_panel(
    b: Builder, queries: ir.Value, panel: ir.Value, scores: ir.Value, row_bytes: ir.Value, head_dim: int, kind: int
) -> None:
    """scores[row, 0:PANEL_SLOTS] = queries[row] . keys of the panel, for ROWS rows; `row_bytes` between those."""
    zeros = [[constant(0.0)] * _VECTORS] * ROWS
    num_steps = head_dim // 2 if kind == BFLOAT16 else head_dim  # dimensions, or pairs of them
    sums = _sums_of_products(b, zeros, ir.Constant(I64, num_steps), (queries, 4 * num_steps), (panel, PANEL_ROW), kind)
    for row, totals in enumerate(sums):
        to = b.advanced(scores, row_bytes, row)
        for column, total in enumerate(totals):
            b.write(total, to, 4 * LANES * column)


@kernel_part(num_literals=2)
def soften_row(
    b: Builder,
    scores: ir.Value,
    num_panels: ir.Value,
    limit: ir.Value,
    maximum: ir.Value,
    total: ir.Value,
    out: ir.Value,
    head_dim: int,
    kind: int,
) -> None:
    """Turn a row's scores into weights, 0 from `limit` on, and let what was summed up before weigh as much as now.

    Scores are powers of 2. *maximum, *total and out[0:head_dim] are those of the softmax so far.
    """
    num_vectors, zero = b.mul(num_panels, ir.Constant(I64, _VECTORS)), ir.Constant(I64, 0)
    state = cgutils.alloca_once_value(b, constant(float("-inf")))
    num_whole = b.ashr(b.select(b.icmp_signed(">", limit, zero), limit, zero), ir.Constant(I64, LANES.bit_length() - 1))
    with cgutils.for_range(b, num_whole) as loop:
        b.store(b.larger(b.load(state), b.read(b.advanced(scores, 4 * LANES, loop.index))), state)
    lanes, end = ir.Constant(INTEGERS, list(range(LANES))), b.splat(b.trunc(limit, I32))
    with cgutils.for_range(b, num_vectors, start=num_whole) as loop:
        at = b.advanced(scores, 4 * LANES, loop.index)
        slots = b.add(lanes, b.splat(b.trunc(b.mul(loop.index, ir.Constant(I64, LANES)), I32)))
        seen = b.select(b.icmp_signed("<", slots, end), b.read(at), constant(float("-inf")))
        b.write(seen, at)
        b.store(b.larger(b.load(state), seen), state)
    before = b.load(b.inttoptr(maximum, F32.as_pointer()))
    highest = b.larger(b.across(b.load(state), b.larger), before)
    b.store(highest, b.inttoptr(maximum, F32.as_pointer()))
    # Where nothing is visible yet, -inf less -inf would be no number.
    is_empty = b.fcmp_ordered("==", highest, ir.Constant(F32, float("-inf")))
    base = b.splat(b.select(is_empty, ir.Constant(F32, 0.0), highest))
    b.store(constant(0.0), state)
    with cgutils.for_range(b, num_vectors) as loop:
        at = b.advanced(scores, 4 * LANES, loop.index)
        weights = _power(b, b.fsub(b.read(at), base), kind)
        b.store(b.fadd(b.load(state), weights), state)
        if kind == BFLOAT16:  # in the same row: it takes half of what has been read
            pairs = _neighbours(b, weights)
            b.store_at(pairs, b.advanced(scores, 2 * LANES, loop.index), 0)
        else:
            b.write(weights, at)
    kept = _power(b, b.fsub(b.splat(before), base), FLOAT32)
    pointer = b.inttoptr(total, F32.as_pointer())
    first = b.extract_element(kept, ir.Constant(I32, 0))
    b.store(b.fadd(b.fmul(b.load(pointer), first), b.across(b.load(state), b.fadd)), pointer)
    with b.if_then(b.fcmp_ordered("!=", before, highest)):
        for at in range(0, head_dim, LANES):
            b.write(b.fmul(b.read(out, 4 * at), kept), out, 4 * at)


@kernel_part(num_literals=2)
def add_values(
    b: Builder,
    weights: ir.Value,
    row_bytes: ir.Value,
    values: ir.Value,
    num_steps: ir.Value,
    out: ir.Value,
    head_dim: int,
    kind: int,
) -> None:
    """out[row] += the sum of weights[row, slot] * values[slot], for ROWS rows; steps are slots, or pairs of them.

    `values` are packed: head_dim numbers, or pairs, of a step after those of the step before.
    """
    for first in range(0, head_dim, LANES * _VECTORS):
        columns = range(first, min(first + LANES * _VECTORS, head_dim), LANES)
        begun = [[b.read(out, 4 * (head_dim * row + at)) for at in columns] for row in range(ROWS)]
        right = b.add(values, ir.Constant(I64, 4 * first)), 4 * head_dim
        sums = _sums_of_products(b, begun, num_steps, (weights, row_bytes), right, kind)
        for row, totals in enumerate(sums):
            for at, total in zip(columns, totals, strict=True):
                b.write(total, out, 4 * (head_dim * row + at))


@kernel_part(num_literals=1)
def begin_row(b: Builder, maximum: ir.Value, total: ir.Value, out: ir.Value, head_dim: int) -> None:
    """The softmax over nothing."""
    b.store(ir.Constant(F32, float("-inf")), b.inttoptr(maximum, F32.as_pointer()))
    b.store(ir.Constant(F32, 0.0), b.inttoptr(total, F32.as_pointer()))
    for at in range(0, head_dim, LANES):
        b.write(constant(0.0), out, 4 * at)


@kernel_part(num_literals=1)
def finish_row(b: Builder, total: ir.Value, sums: ir.Value, out: ir.Value, head_dim: int) -> None:
    """out = sums / *total."""
    factor = b.splat(b.fdiv(ir.Constant(F32, 1.0), b.load(b.inttoptr(total, F32.as_pointer()))))
    for at in range(0, head_dim, LANES):
        b.write(b.fmul(b.read(sums, 4 * at), factor), out, 4 * at)
