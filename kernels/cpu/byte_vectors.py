"""Groups of packed weights times rounded activations on a CPU, written as LLVM instructions.

A tile of weights is 16 rows (outputs). A vector holds some outputs x 4 inputs, one byte each; the activations of the
same 4 inputs stand beside it as often. How a group lies in memory is said in `kernels.packed`.
"""

from __future__ import annotations

from collections.abc import Iterator

import llvmlite.binding as llvm
from llvmlite import ir
from numba.core import cgutils
from ondevice.kernels.cpu.vectors import F32, I8, I16, I32, I64, Builder, kernel_part, same
from ondevice.kernels.packed import BY_NUMBER, TILE_ROWS, VECTOR_BYTES, Format

PLAIN, AVX2, VNNI, WIDE_VNNI = range(4)  # what a processor multiplies bytes with


def _best_level() -> int:
    features = llvm.get_host_cpu_features()
    if all(features.get(name) for name in ("avx512vnni", "avx512vl", "avx512bw")):
        return WIDE_VNNI
    if features.get("avxvnni"):
        return VNNI
    return AVX2 if features.get("avx2") else PLAIN


LEVEL = _best_level()  # instructions with sums of 32 bits, in vectors of 64 bytes or of 32; with sums of 16 bits; none

_F16 = ir.HalfType()
_LARGEST_WORD = 32767
_AHEAD = 2048  # bytes of packed weights that are on their way while others are multiplied
LARGEST = 127  # of a rounded activation


def largest_step() -> int:
    """Tokens that go through a group together, at most: their sums take half of the registers."""
    return 8 if LEVEL == WIDE_VNNI else 4


def tiles_at_once() -> int:
    """Tiles that activations are multiplied with while they are at hand, where weights are unpacked."""
    return 2 if LEVEL == WIDE_VNNI else 1


def _num_lanes() -> int:
    """Outputs in a vector."""
    return TILE_ROWS if LEVEL == WIDE_VNNI else TILE_ROWS // 2


def _of(kind: ir.Type, per_output: int = 1) -> ir.VectorType:
    return ir.VectorType(kind, per_output * _num_lanes())


def _parts() -> range:
    """Vectors that a tile takes."""
    return range(TILE_ROWS // _num_lanes())


def _first(part: int) -> int:
    """Offset of a part of 16 numbers of four bytes, or of 16 x 4 bytes."""
    return 4 * _num_lanes() * part


def _add_pairs(b: Builder, products: ir.Value) -> ir.Value:
    """Sums of neighbours: half as many lanes."""
    lanes, kind = products.type.count, ir.VectorType(I32, products.type.count // 2)
    even, odd = (
        b.shuffle_vector(products, products, ir.Constant(kind, list(range(first, lanes, 2)))) for first in (0, 1)
    )
    return b.add(even, odd)


def _add_byte_products(b: Builder, total: ir.Value, weights: ir.Value, activations: ir.Value) -> ir.Value:
    """Unsigned times signed bytes, the four of an output added to its sum of 32 bits."""
    kind = _of(I32)
    name = f"llvm.x86.avx512.vpdpbusd.{32 * kind.count}"
    return b.call_function(name, kind, [total, b.bitcast(weights, kind), b.bitcast(activations, kind)])


def _byte_products(b: Builder, weights: ir.Value, activations: ir.Value) -> ir.Value:
    """Unsigned times signed bytes, neighbours added: two numbers of 16 bits for each output. They must fit."""
    if LEVEL == AVX2:
        return b.call_function("llvm.x86.avx2.pmadd.ub.sw", _of(I16, 2), [weights, activations])
    words = _of(I16, 4)
    return _add_pairs(b, b.mul(b.zext(weights, words), b.sext(activations, words)))


def _word_sums(b: Builder, words: ir.Value, factor: int) -> ir.Value:
    """Neighbours added, times `factor`: a number of 32 bits for each output."""
    if LEVEL == AVX2:
        return b.call_function("llvm.x86.avx2.pmadd.wd", _of(I32), [words, same(_of(I16, 2), factor)])
    return b.mul(_add_pairs(b, b.sext(words, _of(I32, 2))), same(_of(I32), factor))


def _planes(form: Format) -> range:
    """Factors of a product: the four upper bits (1) and the lower of eight (0) are one where sums have room."""
    if LEVEL >= VNNI or form.num_planes == 1:
        return range(1)
    return range(1, 2) if form.lower == "unread" else range(2)


def is_centred(form: Format) -> bool:
    """True if sums of 16 bits hold those of a group once the middle is taken from its codes, whatever they hold before.

    They begin with what that takes away then, and come out exact: 16 bits wrap around.
    """
    return LEVEL < VNNI and not form.has_offset and len(_planes(form)) == 1 and _holds(form.farthest, form.num_chunks)


def _holds(largest: int, num_chunks: int) -> bool:
    """True if a sum of 16 bits holds two products of each of so many chunks."""
    return 2 * num_chunks * largest * LARGEST <= _LARGEST_WORD


class _Packed:
    """A group of a tile of weights as it is stored; at `lower` are the tile's bits that stand apart."""

    def __init__(self, b: Builder, tile: ir.Value, lower: ir.Value, group: ir.Value, form: Format) -> None:
        self._b, self._form = b, form
        per_unit = ir.Constant(I64, form.unit_groups)
        self._unit = b.advanced(tile, form.unit_bytes, b.udiv(group, per_unit))
        within = b.advanced(self._unit, form.group_bytes, b.urem(group, per_unit))
        self.address = b.add(within, ir.Constant(I64, form.unit_header_bytes))
        self._upper = b.add(self.address, ir.Constant(I64, form.header_bytes))
        beside = b.add(self._upper, ir.Constant(I64, form.plane_bytes))
        self.lower = beside if form.lower == "beside" else b.advanced(lower, form.lower_bytes, group)

    def scale(self, part: int) -> ir.Value:
        return self._factor(_num_lanes() * part)

    def offset(self, part: int) -> ir.Value:
        return self._factor(TILE_ROWS + _num_lanes() * part)

    def weights(self, part: int, chunk: int, plane: int) -> ir.Value:
        """Some outputs x 4 inputs, unsigned; of eight bits in two planes the upper four (1) or the lower (0)."""
        form, num_lower = self._form, self._form.num_lower_bits
        if _planes(form).stop == 2:
            found = self._bits(self._upper if plane else self.lower, part, chunk, 4, 0)
        else:
            found = self._bits(self._upper, part, chunk, 4, num_lower)
            if num_lower and form.lower != "unread":
                found = self._b.or_(found, self._bits(self.lower, part, chunk, num_lower, 0))
        return self._b.bitcast(found, _of(I8, 4))

    def _bits(self, plane: ir.Value, part: int, chunk: int, bits: int, to: int) -> ir.Value:
        """So many bits of every byte, moved up by `to`; what crosses into the neighbour is masked away."""
        b, apart = self._b, self._form.num_chunks * bits // 8
        words = b.load_at(plane, chunk % apart * VECTOR_BYTES + _first(part), _of(I16, 2))
        shift = to - chunk // apart * bits
        if shift:
            words = (b.shl if shift > 0 else b.lshr)(words, same(words.type, abs(shift)))
        mask = ((1 << bits) - 1) << to
        return b.and_(words, same(words.type, mask << 8 | mask))

    def _factor(self, number: int) -> ir.Value:
        """Some of the tile's scales or offsets, from the one of this number on."""
        b = self._b
        if not self._form.in_two_steps:
            return b.fpext(b.load_at(self.address, 2 * number, _of(_F16)), _of(F32))
        whole = b.sitofp(b.sext(b.load_at(self.address, number, _of(I8), align=1), _of(I32)), _of(F32))
        return b.fmul(whole, b.fpext(b.load_at(self._unit, 2 * number, _of(_F16)), _of(F32)))


class _Panel:
    """A group of weights unpacked: scales and offsets in float32, a byte for each weight."""

    def __init__(self, b: Builder, address: ir.Value, form: Format) -> None:
        self._b, self._address, self._form = b, address, form

    def scale(self, part: int) -> ir.Value:
        return self._b.load_at(self._address, _first(part), _of(F32))

    def offset(self, part: int) -> ir.Value:
        return self._b.load_at(self._address, 4 * TILE_ROWS + _first(part), _of(F32))

    def weights(self, part: int, chunk: int, plane: int) -> ir.Value:
        at = self._form.panel_offset(chunk, plane) + _first(part)
        return self._b.load_at(self._address, at, _of(I8, 4))


@kernel_part(num_literals=1)
def unpack_group(
    b: Builder, tile: ir.Value, lower: ir.Value, number: ir.Value, panel: ir.Value, form_number: int
) -> None:
    """A group of a tile, as `multiply_groups` reads it fastest."""
    form = BY_NUMBER[form_number]
    group = _Packed(b, tile, lower, number, form)
    for part in _parts():
        first = _first(part)
        b.store_at(group.scale(part), panel, first)
        if form.has_offset:
            b.store_at(group.offset(part), panel, 4 * TILE_ROWS + first)
        for plane in _planes(form):
            for chunk in range(form.num_chunks):
                b.store_at(group.weights(part, chunk, plane), panel, form.panel_offset(chunk, plane) + first)


@kernel_part(num_literals=4)
def multiply_groups(
    b: Builder,
    weights: ir.Value,
    lower: ir.Value,
    panel_stride: ir.Value,
    tile_stride: ir.Value,
    num_groups: ir.Value,
    x: ir.Value,
    scales: ir.Value,
    sums: ir.Value,
    begun: ir.Value,
    begun_stride: ir.Value,
    out: ir.Value,
    out_stride: ir.Value,
    num_tokens: int,
    form_number: int,
    is_packed: int,
    num_tiles: int,
) -> None:
    """out[token, 0:16 * num_tiles] = begun[token] + the groups' weights times their part of x[token].

    Strides are in bytes; without one of its own `begun` is the same for all tokens. `weights` are a tile as it is
    packed, `lower` its bits that stand apart, or else panels, whose groups lie a stride apart.
    `x`, `scales` and `sums` are those of `num_tokens` tokens that `round_group` has laid side by side. Offsets come
    last, in a loop of their own, which has more registers for them.
    """
    form = BY_NUMBER[form_number]
    tokens, parts = range(num_tokens), _parts()
    out_rows = [b.advanced(out, out_stride, token) for token in tokens]
    columns = [4 * TILE_ROWS * tile + _first(part) for tile in range(num_tiles) for part in parts]
    begun_rows = [b.advanced(begun, begun_stride, token) for token in tokens]
    results = [
        [cgutils.alloca_once_value(b, b.load_at(row, column, _of(F32))) for column in columns] for row in begun_rows
    ]

    def vectors_of(group: ir.Value) -> list[tuple[_Packed | _Panel, int]]:
        """By column: what holds the weights, and the part of it."""
        starts = [b.advanced(weights, tile_stride, tile) for tile in range(num_tiles)]
        if is_packed:
            tiles: list[_Packed | _Panel] = [_Packed(b, start, lower, group, form) for start in starts]
        else:
            tiles = [_Panel(b, b.advanced(start, panel_stride, group), form) for start in starts]
        return [(tile, part) for tile in tiles for part in parts]

    with cgutils.for_range(b, num_groups) as loop:
        vectors = vectors_of(loop.index)
        if isinstance(vectors[0][0], _Packed):
            b.prefetch(vectors[0][0].address, _AHEAD, form.group_bytes)
            if form.lower == "apart":
                b.prefetch(vectors[0][0].lower, _AHEAD, form.lower_bytes)
        here = b.advanced(x, form.group_size * num_tokens, loop.index)
        group_scales = b.advanced(scales, 4 * num_tokens, loop.index)
        group_sums = None if form.has_offset else b.advanced(sums, 4 * num_tokens, loop.index)
        totals = _group_products(b, vectors, here, group_sums, num_tokens, form)
        for token in tokens:
            scale = b.splat(b.load_at(group_scales, 4 * token, F32), _num_lanes())
            for (tile, part), total, result in zip(vectors, totals[token], results[token], strict=True):
                factor = b.fmul(tile.scale(part), scale)
                b.store(b.fma(b.sitofp(total, _of(F32)), factor, b.load(result)), result)
    if form.has_offset:
        with cgutils.for_range(b, num_groups) as loop:
            offsets = [tile.offset(part) for tile, part in vectors_of(loop.index)]
            group_sums = b.advanced(sums, 4 * num_tokens, loop.index)
            for token in tokens:
                total = b.splat(b.load_at(group_sums, 4 * token, F32), _num_lanes())
                for offset, result in zip(offsets, results[token], strict=True):
                    b.store(b.fma(offset, total, b.load(result)), result)
    for row, row_results in zip(out_rows, results, strict=True):
        for column, result in zip(columns, row_results, strict=True):
            b.store_at(b.load(result), row, column)


def _group_products(
    b: Builder,
    vectors: list[tuple[_Packed | _Panel, int]],
    x: ir.Value,
    sums: ir.Value | None,
    num_tokens: int,
    form: Format,
) -> list[list[ir.Value]]:
    """For each token the sums of 32 bits of each vector of outputs; they begin with those at `sums`, or with 0."""
    zero, tokens = same(_of(I32), 0), range(num_tokens)
    begun = [zero if sums is None else b.splat(b.load_at(sums, 4 * token, I32), _num_lanes()) for token in tokens]
    words: dict[tuple[int, int], ir.Value] = {}
    if is_centred(form):
        words = {(token, at): b.bitcast(begun[token], _of(I16, 2)) for token in tokens for at in range(len(vectors))}
        begun = [zero for _ in tokens]
    totals = [[total] * len(vectors) for total in begun]
    for plane, chunks in _stretches(form):
        for chunk in chunks:
            weights = [tile.weights(part, chunk, plane) for tile, part in vectors]
            for token in tokens:
                four = b.splat(b.load_at(x, 4 * (num_tokens * chunk + token), I32), _num_lanes())
                four = b.bitcast(four, _of(I8, 4))
                for at, vector in enumerate(weights):
                    if LEVEL >= VNNI:
                        totals[token][at] = _add_byte_products(b, totals[token][at], vector, four)
                    else:
                        product = _byte_products(b, vector, four)
                        before = words.get((token, at))
                        words[token, at] = b.in_order(product if before is None else b.add(before, product))
        for (token, at), products in words.items():
            totals[token][at] = b.add(totals[token][at], _word_sums(b, products, 16**plane))
        words.clear()
    return totals


def _stretches(form: Format) -> Iterator[tuple[int, range]]:
    """Chunks whose products can be added up in 16 bits, if that is what sums have."""
    length = form.num_chunks
    while not (LEVEL >= VNNI or is_centred(form) or _holds(form.largest, length)):
        length //= 2
    for plane in _planes(form):
        for first in range(0, form.num_chunks, length):
            yield plane, range(first, min(first + length, form.num_chunks))
