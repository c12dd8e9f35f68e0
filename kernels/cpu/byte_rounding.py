"""Activations rounded to bytes on a CPU, written as LLVM instructions, as `byte_vectors` multiplies them."""

from __future__ import annotations

from llvmlite import ir
from ondevice.kernels.cpu.byte_vectors import LARGEST, is_centred
from ondevice.kernels.cpu.vectors import F32, I8, I32, Builder, kernel_part, same
from ondevice.kernels.packed import BY_NUMBER

_INTEGERS, _FLOATS = ir.VectorType(I32, 8), ir.VectorType(F32, 8)
_PAIRS = [1, 1, 0, 0] * 2, [0, 0, 1, 1] * 2


@kernel_part(num_literals=1)
def round_group(
    b: Builder,
    x: ir.Value,
    rounded: ir.Value,
    chunk_stride: ir.Value,
    scale: ir.Value,
    total: ir.Value,
    form_number: int,
) -> None:
    """x, a group of float32, as bytes times a scale; and the sum of those bytes, as `multiply_groups` wants it.

    Every four bytes stand `chunk_stride` bytes after those before them: between them is room for other tokens.
    """
    form = BY_NUMBER[form_number]
    vectors = [b.load_at(x, 32 * at, _FLOATS) for at in range(form.group_size // 8)]
    largest = same(_FLOATS, 0.0)
    for vector in vectors:
        size = b.call_function("llvm.fabs.v8f32", _FLOATS, [vector])
        largest = b.larger(size, largest)
    peak = b.across(largest, b.larger)
    zero = ir.Constant(F32, 0.0)
    inverse = b.select(b.fcmp_ordered(">", peak, zero), b.fdiv(ir.Constant(F32, float(LARGEST)), peak), zero)
    factor = b.splat(inverse, _FLOATS.count)
    sums = same(_INTEGERS, 0)
    for at, vector in enumerate(vectors):
        nearest = b.call_function("llvm.rint.v8f32", _FLOATS, [b.fmul(vector, factor)])
        whole = b.fptosi(nearest, _INTEGERS)
        sums = b.add(sums, whole)
        fours = b.bitcast(b.trunc(whole, ir.VectorType(I8, 8)), ir.VectorType(I32, 2))
        for half in range(2):
            four = b.extract_element(fours, ir.Constant(I32, half))
            b.store_at(four, b.advanced(rounded, chunk_stride, 2 * at + half))
    step = b.fmul(peak, ir.Constant(F32, 1.0 / LARGEST))
    b.store_at(step, scale)
    if form.has_offset:
        b.store_at(b.fmul(b.sitofp(b.across(sums, b.add), F32), step), total)
    elif is_centred(form):  # of the first two of four inputs, and of the last two, 16 bits each
        first, last = (b.across(b.mul(sums, ir.Constant(_INTEGERS, own)), b.add) for own in _PAIRS)
        middle = ir.Constant(I32, -form.middle)
        lower = b.and_(b.mul(first, middle), ir.Constant(I32, 0xFFFF))
        b.store_at(b.or_(lower, b.shl(b.mul(last, middle), ir.Constant(I32, 16))), total)
    else:
        b.store_at(b.mul(b.across(sums, b.add), ir.Constant(I32, -form.middle)), total)
