"""Activations rounded to bytes on a CPU, written as LLVM instructions, as `byte_vectors` multiplies them."""

from __future__ import annotations

from llvmlite import ir
from ondevice.kernels.cpu.byte_vectors import LARGEST, load, store
from ondevice.kernels.cpu.vectors import F32, I8, I32, across, advanced, call_function, kernel_part, larger, same, splat
from ondevice.kernels.packed import BY_NUMBER

_INTEGERS, _FLOATS = ir.VectorType(I32, 8), ir.VectorType(F32, 8)


@kernel_part(num_literals=1)
def round_group(
    b: ir.IRBuilder,
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
    vectors = [load(b, x, 32 * at, _FLOATS) for at in range(form.group_size // 8)]
    largest = same(_FLOATS, 0.0)
    for vector in vectors:
        size = call_function(b, "llvm.fabs.v8f32", _FLOATS, [vector])
        largest = larger(b, size, largest)
    peak = across(b, largest, larger)
    zero = ir.Constant(F32, 0.0)
    inverse = b.select(b.fcmp_ordered(">", peak, zero), b.fdiv(ir.Constant(F32, float(LARGEST)), peak), zero)
    factor = splat(b, inverse, _FLOATS.count)
    sums = same(_INTEGERS, 0)
    for at, vector in enumerate(vectors):
        nearest = call_function(b, "llvm.rint.v8f32", _FLOATS, [b.fmul(vector, factor)])
        whole = b.fptosi(nearest, _INTEGERS)
        sums = b.add(sums, whole)
        fours = b.bitcast(b.trunc(whole, ir.VectorType(I8, 8)), ir.VectorType(I32, 2))
        for half in range(2):
            four = b.extract_element(fours, ir.Constant(I32, half))
            store(b, four, advanced(b, rounded, chunk_stride, 2 * at + half))
    step = b.fmul(peak, ir.Constant(F32, 1.0 / LARGEST))
    store(b, step, scale)
    whole_sum = across(b, sums, ir.IRBuilder.add)
    if form.has_offset:
        store(b, b.fmul(b.sitofp(whole_sum, F32), step), total)
    else:
        store(b, b.mul(whole_sum, ir.Constant(I32, -form.middle)), total)
