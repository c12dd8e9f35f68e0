"""Merging of a block's result into the output of decode attention on a CPU, and whether that has changed it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from llvmlite import ir
from numba.core import types
from ondevice.kernels.cpu.vectors import (
    F32,
    F64,
    I1,
    I32,
    I64,
    LANES,
    TILE_ROWS,
    Builder,
    constant,
    kernel_part,
    num_vectors,
)

_DOUBLES = ir.VectorType(F64, TILE_ROWS)


@kernel_part()
def merge_totals(
    b: Builder,
    maximum: ir.Value,
    total: ir.Value,
    block_maximum: ir.Value,
    block_total: ir.Value,
    kept: ir.Value,
    added: ir.Value,
) -> None:
    """Of LANES rows: take a block into the softmax, and say with which factors its sum goes into the output."""
    old, new = b.read(maximum), b.read(block_maximum)
    highest = b.larger(old, new)
    decayed, block = b.fmul(b.read(total), b.exp(b.fsub(old, highest))), b.exp(b.fsub(new, highest))
    whole = b.fma(b.read(block_total), block, decayed)
    share = b.fdiv(constant(1.0), whole)
    b.write(highest, maximum)
    b.write(whole, total)
    b.write(b.fmul(decayed, share), kept)
    b.write(b.fmul(block, share), added)


@kernel_part(num_literals=2, has_rows=True)
def merge_rows(
    b: Builder,
    out: ir.Value,
    block: ir.Value,
    kept: ir.Value,
    added: ir.Value,
    num_here: int,
    num_rows: int,
    head_dim: int,
) -> None:
    """out[row] = kept[row] * out[row] + added[row] * block[row]."""
    for row in range(num_here):
        for _ in _merged(b, out, block, kept, added, row, head_dim):
            pass


@kernel_part(num_literals=2, has_rows=True)
def merge_and_watch(
    b: Builder,
    out: ir.Value,
    block: ir.Value,
    kept: ir.Value,
    added: ir.Value,
    norms: ir.Value,
    limits: ir.Value,
    num_moving: ir.Value,
    num_here: int,
    num_rows: int,
    head_dim: int,
) -> None:
    """As `merge_rows`; and *num_moving += 1 where a row has not stood still (ART, equation 4).

    The squared norms of the rows as they were before are at `norms`, where those of now take their place. `limits` are
    float64: the square of the step that is allowed, that share of the squared norm, four times the square of the least
    cosine with its sign, and what a row that comes from zero or goes there counts as: 1 for standing still if it has
    moved, and 1 if it has not.
    """
    zero = constant(0.0)
    columns = [[zero] * TILE_ROWS for _ in range(2)]  # the step and the new row, squared, of every row
    for row in range(num_here):
        sums = [zero] * 2
        for old, now in _merged(b, out, block, kept, added, row, head_dim):
            step = b.fsub(now, old)
            sums = [b.fma(step, step, sums[0]), b.fma(now, now, sums[1])]
        for column, total in zip(columns, sums, strict=True):
            column[row] = total
    moved, now = _measures(b, columns)
    pointer = b.pointer_to(norms, 0, ir.VectorType(F32, TILE_ROWS))
    before = b.fpext(b.load(pointer, align=4), _DOUBLES)
    b.store(b.fptrunc(now, ir.VectorType(F32, TILE_ROWS)), pointer, align=4)
    step, share, cosine, if_moved, if_not = (
        b.splat(b.load(b.pointer_to(limits, 8 * i, F64), align=8), TILE_ROWS) for i in range(5)
    )
    nothing = ir.Constant(_DOUBLES, [0.0] * TILE_ROWS)
    is_short = b.fcmp_ordered("<", moved, b.fadd(step, b.fmul(share, now)))
    # Twice the product of the new row and the old one, by the law of cosines; compared on squares that keep their
    # sign: no roots, and no division.
    product = b.fsub(b.fadd(now, before), moved)
    squares = b.fmul(now, before)
    size = b.call_function(f"llvm.fabs.v{TILE_ROWS}f64", _DOUBLES, [product])
    is_straight = b.fcmp_ordered(">", b.fmul(product, size), b.fmul(cosine, squares))
    at_zero = b.select(b.fcmp_ordered(">", moved, nothing), if_moved, if_not)
    is_straight = b.select(b.fcmp_ordered(">", squares, nothing), is_straight, b.fcmp_ordered(">", at_zero, nothing))
    stands = b.and_(is_short, is_straight)
    rows = ir.Constant(ir.VectorType(I1, TILE_ROWS), [int(row < num_here) for row in range(TILE_ROWS)])
    moving = b.bitcast(b.and_(b.not_(stands), rows), ir.IntType(TILE_ROWS))
    pointer = b.inttoptr(num_moving, I64.as_pointer())
    b.store(b.add(b.load(pointer), b.zext(moving, I64)), pointer)


def _merged(
    b: Builder, out: ir.Value, block: ir.Value, kept: ir.Value, added: ir.Value, row: int, head_dim: int
) -> Iterator[tuple[ir.Value, ir.Value]]:
    """Take one row of a block into the output; what each vector was, and what it is."""
    factors = [b.load_at(x, 4 * row, F32) for x in (kept, added)]
    keep, add = (b.splat(factor) for factor in factors)
    for at in range(0, head_dim, LANES):
        lanes = min(LANES, head_dim - at)
        old = b.read(out, 4 * (head_dim * row + at), lanes)
        new = b.read(block, 4 * (LANES * num_vectors(head_dim) * row + at))
        now = b.fma(new, add, b.fmul(old, keep))
        b.write(now, out, 4 * (head_dim * row + at), lanes)
        yield old, now


def _measures(b: Builder, columns: Sequence[Sequence[ir.Value]]) -> list[ir.Value]:
    """The sums over the lanes of two columns of vectors, each column as one vector of float64."""
    sums = b.lane_sums([vector for column in columns for vector in column])
    rows = [[i * TILE_ROWS + row for row in range(TILE_ROWS)] for i in range(len(columns))]
    lanes = [ir.Constant(ir.VectorType(I32, TILE_ROWS), some) for some in rows]
    return [b.fpext(b.shuffle_vector(sums, sums, some), _DOUBLES) for some in lanes]


@kernel_part(result=types.int64)
def allows_any(b: Builder, limits: ir.Value) -> ir.Value:
    """1 if there is a step so short that these limits of `merge_and_watch` would allow it, else 0."""
    step, share = (b.load(b.pointer_to(limits, 8 * i, F64), align=8) for i in range(2))
    return b.zext(b.fcmp_ordered(">", b.fadd(step, share), ir.Constant(F64, 0.0)), I64)
