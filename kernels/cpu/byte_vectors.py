"""Groups of packed weights times rounded activations on a CPU, written as LLVM instructions.

A tile of weights is 16 rows (outputs), seen as two halves of 8. A vector holds 8 outputs x 4 inputs, one byte each;
the activations of the same 4 inputs stand beside it 8 times. How a group lies in memory is said in `kernels.packed`.
"""

from __future__ import annotations

from collections.abc import Iterator

import llvmlite.binding as llvm
from llvmlite import ir
from numba.core import cgutils
from ondevice.kernels.cpu.vectors import F32, I32, I64, call_function, kernel_part, pointer_to, prefetch
from ondevice.kernels.packed import FORMATS, HALF_ROWS, VECTOR_BYTES, Format

HAS_AVX2 = bool(llvm.get_host_cpu_features().get("avx2"))

_I8, _I16, _F16 = ir.IntType(8), ir.IntType(16), ir.HalfType()
_BYTES, _WORDS = ir.VectorType(_I8, 32), ir.VectorType(_I16, 16)
_INTEGERS, _FLOATS = ir.VectorType(I32, 8), ir.VectorType(F32, 8)
_HALVES = (0, 1)
_LARGEST_WORD = 32767
_AHEAD = 2048  # bytes of packed weights that are on their way while others are multiplied
_LARGEST = 127  # of a rounded activation


def _same(vector: ir.VectorType, value: float) -> ir.Constant:
    return ir.Constant(vector, [value] * vector.count)


def _splat(b: ir.IRBuilder, number: ir.Value) -> ir.Value:
    one = b.insert_element(ir.Constant(ir.VectorType(number.type, 8), ir.Undefined), number, ir.Constant(I32, 0))
    return b.shuffle_vector(one, one, _same(_INTEGERS, 0))


def _load(b: ir.IRBuilder, address: ir.Value, offset: int, kind: ir.Type, align: int = 4) -> ir.Value:
    return b.load(pointer_to(b, address, offset, kind), align=align)


def _store(b: ir.IRBuilder, value: ir.Value, address: ir.Value, offset: int = 0, align: int = 4) -> None:
    b.store(value, pointer_to(b, address, offset, value.type), align=align)


def _row(b: ir.IRBuilder, address: ir.Value, stride: ir.Value, index: int) -> ir.Value:
    return b.add(address, b.mul(stride, ir.Constant(I64, index)))


def _add_pairs(b: ir.IRBuilder, products: ir.Value) -> ir.Value:
    """Sums of neighbours: half as many lanes."""
    lanes, kind = products.type.count, ir.VectorType(I32, products.type.count // 2)
    even, odd = (
        b.shuffle_vector(products, products, ir.Constant(kind, list(range(first, lanes, 2)))) for first in (0, 1)
    )
    return b.add(even, odd)


def _byte_products(b: ir.IRBuilder, weights: ir.Value, activations: ir.Value) -> ir.Value:
    """Unsigned times signed bytes, neighbours added: 16 numbers of 16 bits. They must fit."""
    if HAS_AVX2:
        return call_function(b, "llvm.x86.avx2.pmadd.ub.sw", _WORDS, [weights, activations])
    words = ir.VectorType(_I16, 32)
    return _add_pairs(b, b.mul(b.zext(weights, words), b.sext(activations, words)))


def _word_sums(b: ir.IRBuilder, words: ir.Value, factor: int) -> ir.Value:
    """Neighbours added, times `factor`: 8 numbers of 32 bits, one for each output."""
    if HAS_AVX2:
        return call_function(b, "llvm.x86.avx2.pmadd.wd", _INTEGERS, [words, _same(_WORDS, factor)])
    wide = ir.VectorType(I32, 16)
    return b.mul(_add_pairs(b, b.sext(words, wide)), _same(_INTEGERS, factor))


def _fma(b: ir.IRBuilder, x: ir.Value, y: ir.Value, z: ir.Value) -> ir.Value:
    return call_function(b, "llvm.fma.v8f32", _FLOATS, [x, y, z])


class _Packed:
    """A group of weights as it is stored."""

    def __init__(self, b: ir.IRBuilder, address: ir.Value, form: Format) -> None:
        self._b, self._address, self._form = b, address, form

    def scale(self, half: int) -> ir.Value:
        return self._factor(2 * HALF_ROWS * half)

    def offset(self, half: int) -> ir.Value:
        return self._factor(2 * HALF_ROWS * (2 + half))

    def weights(self, half: int, chunk: int, plane: int) -> ir.Value:
        """8 outputs x 4 inputs, unsigned; of `plane` 1 the upper four of eight bits."""
        b, form = self._b, self._form
        at = form.header_bytes + plane * form.plane_bytes
        pairs = form.num_chunks // 2
        nibbles = self._words(at + (half * pairs + chunk % pairs) * VECTOR_BYTES)
        low = self._bits(nibbles, 0 if chunk < pairs else -4, 0x0F)
        if form.num_high_bits == 0:
            return b.bitcast(low, _BYTES)
        high = self._words(at + form.plane_bytes + half * VECTOR_BYTES)
        upper = ((1 << form.num_high_bits) - 1) << 4
        return b.bitcast(b.or_(low, self._bits(high, 4 - form.num_high_bits * chunk, upper)), _BYTES)

    def _words(self, offset: int) -> ir.Value:
        return _load(self._b, self._address, offset, _WORDS)

    def _bits(self, words: ir.Value, shift: int, mask: int) -> ir.Value:
        """Bits of every byte, moved up by `shift` or down; what crosses into the neighbour is masked away."""
        b = self._b
        if shift:
            words = (b.shl if shift > 0 else b.lshr)(words, _same(_WORDS, abs(shift)))
        return b.and_(words, _same(_WORDS, mask << 8 | mask))

    def _factor(self, offset: int) -> ir.Value:
        return self._b.fpext(_load(self._b, self._address, offset, ir.VectorType(_F16, 8)), _FLOATS)


class _Panel:
    """A group of weights unpacked: scales and offsets in float32, a byte for each weight."""

    def __init__(self, b: ir.IRBuilder, address: ir.Value, form: Format) -> None:
        self._b, self._address, self._form = b, address, form

    def scale(self, half: int) -> ir.Value:
        return _load(self._b, self._address, VECTOR_BYTES * half, _FLOATS)

    def offset(self, half: int) -> ir.Value:
        return _load(self._b, self._address, VECTOR_BYTES * (2 + half), _FLOATS)

    def weights(self, half: int, chunk: int, plane: int) -> ir.Value:
        return _load(self._b, self._address, self._form.panel_offset(half, chunk, plane), _BYTES)


@kernel_part(num_literals=2)
def unpack_group(b: ir.IRBuilder, packed: ir.Value, panel: ir.Value, bits: int, has_offset: int) -> None:
    """A group of 16 rows, as `multiply_group` reads it fastest."""
    form = FORMATS[bits, bool(has_offset)]
    group = _Packed(b, packed, form)
    for half in _HALVES:
        _store(b, group.scale(half), panel, VECTOR_BYTES * half)
        if has_offset:
            _store(b, group.offset(half), panel, VECTOR_BYTES * (2 + half))
        for plane in range(form.num_planes):
            for chunk in range(form.num_chunks):
                _store(b, group.weights(half, chunk, plane), panel, form.panel_offset(half, chunk, plane))


@kernel_part(num_literals=4)
def multiply_group(
    b: ir.IRBuilder,
    weights: ir.Value,
    x: ir.Value,
    x_stride: ir.Value,
    scales: ir.Value,
    sums: ir.Value,
    scale_stride: ir.Value,
    out: ir.Value,
    out_stride: ir.Value,
    num_tokens: int,
    bits: int,
    has_offset: int,
    is_packed: int,
) -> None:
    """out[token, 0:16] += the group's weights times its part of x[token]. Strides are in bytes.

    `sums` are what `round_group` leaves. Offsets are left to `add_offsets`, which has more registers for them.
    """
    form = FORMATS[bits, bool(has_offset)]
    group = _Packed(b, weights, form) if is_packed else _Panel(b, weights, form)
    if is_packed:
        prefetch(b, weights, _AHEAD, form.group_bytes)
    tokens = range(num_tokens)
    rows = [_row(b, x, x_stride, token) for token in tokens]
    scale_rows = [_row(b, scales, scale_stride, token) for token in tokens]
    sum_rows = [_row(b, sums, scale_stride, token) for token in tokens]
    out_rows = [_row(b, out, out_stride, token) for token in tokens]
    pairs = [(token, half) for token in tokens for half in _HALVES]
    totals: dict[tuple[int, int], ir.Value] = {}
    for plane, chunks in _stretches(form):
        words: dict[tuple[int, int], ir.Value] = {}
        for chunk in chunks:
            vectors = [group.weights(half, chunk, plane) for half in _HALVES]
            for token in tokens:
                four = b.bitcast(_splat(b, _load(b, rows[token], 4 * chunk, I32)), _BYTES)
                for half in _HALVES:
                    product = _byte_products(b, vectors[half], four)
                    words[token, half] = _sum(b, words.get((token, half)), product)
        for pair in pairs:
            totals[pair] = _sum(b, totals.get(pair), _word_sums(b, words[pair], 16**plane))
    for token, half in pairs:
        total = totals[token, half]
        if not has_offset:
            total = b.add(total, _splat(b, _load(b, sum_rows[token], 0, I32)))
        factor = b.fmul(group.scale(half), _splat(b, _load(b, scale_rows[token], 0, F32)))
        before = _load(b, out_rows[token], VECTOR_BYTES * half, _FLOATS)
        _store(b, _fma(b, b.sitofp(total, _FLOATS), factor, before), out_rows[token], VECTOR_BYTES * half)


@kernel_part(num_literals=3)
def add_offsets(
    b: ir.IRBuilder,
    weights: ir.Value,
    weight_stride: ir.Value,
    num_groups: ir.Value,
    sums: ir.Value,
    sum_stride: ir.Value,
    out: ir.Value,
    out_stride: ir.Value,
    num_tokens: int,
    bits: int,
    is_packed: int,
) -> None:
    """out[token, 0:16] += the offsets of several groups times the sums of their activations. Strides are in bytes."""
    form = FORMATS[bits, True]
    tokens = range(num_tokens)
    sum_rows = [_row(b, sums, sum_stride, token) for token in tokens]
    out_rows = [_row(b, out, out_stride, token) for token in tokens]
    pairs = [(token, half) for token in tokens for half in _HALVES]
    totals = {
        (token, half): cgutils.alloca_once_value(b, _load(b, out_rows[token], VECTOR_BYTES * half, _FLOATS))
        for token, half in pairs
    }
    with cgutils.for_range(b, num_groups) as loop:
        at = b.add(weights, b.mul(weight_stride, loop.index))
        group = _Packed(b, at, form) if is_packed else _Panel(b, at, form)
        offsets = [group.offset(half) for half in _HALVES]
        for token in tokens:
            place = b.add(sum_rows[token], b.mul(loop.index, ir.Constant(I64, 4)))
            total = _splat(b, _load(b, place, 0, F32))
            for half in _HALVES:
                slot = totals[token, half]
                b.store(_fma(b, offsets[half], total, b.load(slot)), slot)
    for token, half in pairs:
        _store(b, b.load(totals[token, half]), out_rows[token], VECTOR_BYTES * half)


def _sum(b: ir.IRBuilder, before: ir.Value | None, added: ir.Value) -> ir.Value:
    return added if before is None else b.add(before, added)


def _stretches(form: Format) -> Iterator[tuple[int, range]]:
    """Chunks whose products can be added up in 16 bits."""
    length = min(4, _LARGEST_WORD // (2 * form.largest * _LARGEST))
    for plane in range(form.num_planes):
        for first in range(0, form.num_chunks, length):
            yield plane, range(first, min(first + length, form.num_chunks))


@kernel_part(num_literals=2)
def round_group(
    b: ir.IRBuilder, x: ir.Value, rounded: ir.Value, scale: ir.Value, total: ir.Value, bits: int, has_offset: int
) -> None:
    """x, a group of float32, as bytes times a scale; and the sum of those bytes, as `multiply_group` wants it."""
    form = FORMATS[bits, bool(has_offset)]
    vectors = [_load(b, x, VECTOR_BYTES * at, _FLOATS) for at in range(form.group_size // 8)]
    largest = _same(_FLOATS, 0.0)
    for vector in vectors:
        size = call_function(b, "llvm.fabs.v8f32", _FLOATS, [vector])
        largest = b.select(b.fcmp_ordered(">", size, largest), size, largest)
    peak = _across(b, largest, lambda x, y: b.select(b.fcmp_ordered(">", x, y), x, y))
    zero = ir.Constant(F32, 0.0)
    inverse = b.select(b.fcmp_ordered(">", peak, zero), b.fdiv(ir.Constant(F32, float(_LARGEST)), peak), zero)
    factor = _splat(b, inverse)
    sums = _same(_INTEGERS, 0)
    for at, vector in enumerate(vectors):
        nearest = call_function(b, "llvm.rint.v8f32", _FLOATS, [b.fmul(vector, factor)])
        whole = b.fptosi(nearest, _INTEGERS)
        sums = b.add(sums, whole)
        _store(b, b.trunc(whole, ir.VectorType(_I8, 8)), rounded, 8 * at, align=1)
    step = b.fmul(peak, ir.Constant(F32, 1.0 / _LARGEST))
    _store(b, step, scale)
    whole_sum = _across(b, sums, b.add)
    if has_offset:
        _store(b, b.fmul(b.sitofp(whole_sum, F32), step), total)
    else:
        _store(b, b.mul(whole_sum, ir.Constant(I32, -form.middle)), total)


def _across(b: ir.IRBuilder, vector: ir.Value, combine: object) -> ir.Value:
    for distance in (4, 2, 1):
        lanes = [(lane + distance) % 8 for lane in range(8)]
        vector = combine(vector, b.shuffle_vector(vector, vector, ir.Constant(_INTEGERS, lanes)))  # type: ignore[operator]
    return b.extract_element(vector, ir.Constant(I32, 0))
