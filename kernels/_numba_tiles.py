"""Vector code of the decode attention on a CPU, written as LLVM instructions for Numba to put into its kernel.

Numba's own loops leave sums along a row, exponentials and bfloat16 to chance; here every vector is spelled out. Memory
is named by integer addresses; rows of head_dim numbers are whole vectors, the last one cut by a mask.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

IS_WIDE = bool(llvm.get_host_cpu_features().get("avx512f"))
LANES = 16 if IS_WIDE else 8  # numbers in a vector; where registers are narrower LLVM takes several for one
TILE_ROWS = 4  # rows of queries that go through a block together
_ACCUMULATORS = 24 if IS_WIDE else 12  # vectors that stay in registers, beside those that are passing through

FLOAT32, BFLOAT16 = 0, 1  # what keys and values are stored as
_SIZES = (4, 2)
_LINE_BYTES = 64

_I1, _I16, _I32, _I64, _F32 = ir.IntType(1), ir.IntType(16), ir.IntType(32), ir.IntType(64), ir.FloatType()
_VECTOR = ir.VectorType(_F32, LANES)
_INTEGERS = ir.VectorType(_I32, LANES)
_SPINS = 2000
_CAN_YIELD = bool(llvm.address_of_symbol("sched_yield"))  # POSIX
_LOG2_E = 1.44269504088896341
_LN_2_HIGH, _LN_2_LOW = 0.693359375, -2.12194440e-4
# Cephes, expf: exp(r) = 1 + r + r^2 * p(r) for |r| <= ln(2) / 2
_EXP_COEFFICIENTS = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 0.5)
_ROUNDING = 12582912.0  # 1.5 * 2^23: adding it leaves the nearest integer in the lowest bits
_LOWEST_EXPONENT = -87.0  # below, exp is no normal number, and counts as 0

Emitter = Callable[..., Any]


def num_vectors(head_dim: int) -> int:
    """Vectors that hold a row; in scratch memory rows are laid out as whole ones."""
    return -(-head_dim // LANES)


# --- pieces of code ---------------------------------------------------------------------------------------------


def _constant(value: float) -> ir.Constant:
    return ir.Constant(_VECTOR, [value] * LANES)


def _integers(value: int) -> ir.Constant:
    return ir.Constant(_INTEGERS, [value] * LANES)


def _pointer(b: ir.IRBuilder, address: ir.Value, offset: int, kind: ir.Type) -> ir.Value:
    return b.inttoptr(b.add(address, ir.Constant(_I64, offset)), kind.as_pointer())


def _call(b: ir.IRBuilder, name: str, result: ir.Type, args: Sequence[ir.Value]) -> ir.Value:
    function = cgutils.get_or_insert_function(b.module, ir.FunctionType(result, [x.type for x in args]), name)
    return b.call(function, args)


def _fma(b: ir.IRBuilder, x: ir.Value, y: ir.Value, z: ir.Value) -> ir.Value:
    return _call(b, f"llvm.fma.v{LANES}f32", _VECTOR, [x, y, z])


def _splat(b: ir.IRBuilder, number: ir.Value) -> ir.Value:
    vector = ir.VectorType(number.type, LANES)
    one = b.insert_element(ir.Constant(vector, ir.Undefined), number, ir.Constant(_I32, 0))
    return b.shuffle_vector(one, ir.Constant(vector, ir.Undefined), _integers(0))


def _mask(num_lanes: int) -> ir.Constant:
    return ir.Constant(ir.VectorType(_I1, LANES), [int(lane < num_lanes) for lane in range(LANES)])


def _load(b: ir.IRBuilder, address: ir.Value, offset: int = 0, num_lanes: int = LANES, kind: int = FLOAT32) -> ir.Value:
    """A vector of float32; lanes from `num_lanes` on are 0, and their memory is not touched."""
    element, suffix, size = (_F32, "f32", 4) if kind == FLOAT32 else (_I16, "i16", 2)
    vector = ir.VectorType(element, LANES)
    pointer = _pointer(b, address, offset, vector)
    if num_lanes >= LANES:
        loaded = b.load(pointer, align=size)
    else:
        zeros = ir.Constant(vector, [0] * LANES)
        args = [pointer, ir.Constant(_I32, size), _mask(num_lanes), zeros]
        loaded = _call(b, f"llvm.masked.load.v{LANES}{suffix}.p0", vector, args)
    if kind == FLOAT32:
        return loaded
    return b.bitcast(b.shl(b.zext(loaded, _INTEGERS), _integers(16)), _VECTOR)


def _store(b: ir.IRBuilder, vector: ir.Value, address: ir.Value, offset: int = 0, num_lanes: int = LANES) -> None:
    pointer = _pointer(b, address, offset, _VECTOR)
    if num_lanes >= LANES:
        b.store(vector, pointer, align=4)
    else:
        args = [vector, pointer, ir.Constant(_I32, 4), _mask(num_lanes)]
        _call(b, f"llvm.masked.store.v{LANES}f32.p0", ir.VoidType(), args)


def _fetch(b: ir.IRBuilder, address: ir.Value, head_dim: int, kind: int) -> None:
    """Have a row of keys or values on its way while others are worked on."""
    for at in range(0, head_dim * _SIZES[kind], _LINE_BYTES):
        # for reading, to be kept in all caches, as data
        hints = [ir.Constant(_I32, hint) for hint in (0, 3, 1)]
        _call(b, "llvm.prefetch.p0", ir.VoidType(), [_pointer(b, address, at, ir.IntType(8)), *hints])


def _larger(b: ir.IRBuilder, x: ir.Value, y: ir.Value) -> ir.Value:
    return b.select(b.fcmp_ordered(">", x, y), x, y)


def _exp(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    """exp(x) for x <= 0, to 1e-7 of it; 0 for -inf."""
    shifted = _fma(b, x, _constant(_LOG2_E), _constant(_ROUNDING))
    whole = b.fsub(shifted, _constant(_ROUNDING))
    rest = _fma(b, whole, _constant(-_LN_2_LOW), _fma(b, whole, _constant(-_LN_2_HIGH), x))
    power = _constant(_EXP_COEFFICIENTS[0])
    for coefficient in _EXP_COEFFICIENTS[1:]:
        power = _fma(b, power, rest, _constant(coefficient))
    power = b.fadd(_fma(b, power, b.fmul(rest, rest), rest), _constant(1.0))
    exponent = b.shl(b.bitcast(shifted, _INTEGERS), _integers(23))
    scaled = b.bitcast(b.add(b.bitcast(power, _INTEGERS), exponent), _VECTOR)
    return b.select(b.fcmp_ordered("<", x, _constant(_LOWEST_EXPONENT)), _constant(0.0), scaled)


def _sums(b: ir.IRBuilder, vectors: Sequence[ir.Value]) -> ir.Value:
    """The sums of LANES vectors, or of fewer, as the lanes of one vector: a transposition that adds on its way."""
    width = 1
    while width < LANES:
        pairs = [vectors[i : i + 2] for i in range(0, len(vectors), 2)]
        vectors = [_add_interleaved(b, *pair, width=width) for pair in pairs]
        width *= 2
    return vectors[0]


def _add_interleaved(b: ir.IRBuilder, x: ir.Value, y: ir.Value | None = None, *, width: int) -> ir.Value:
    """One step of `_sums`: halves of x and of y are added, in pieces that shuffle cheaply (unpack, 128-bit lanes)."""
    if width == 1:
        pick = [(lane, lane, lane + 1, lane + 1) for lane in range(0, LANES, 4)]
        low, high = pick, [tuple(i + 2 for i in p) for p in pick]
        sides = (0, 1, 0, 1)
    elif width == 2:
        pick = [(lane, lane + 1, lane, lane + 1) for lane in range(0, LANES, 4)]
        low, high = pick, [tuple(i + 2 for i in p) for p in pick]
        sides = (0, 0, 1, 1)
    else:
        return _add_chunks(b, x, y, is_last=width * 2 == LANES)
    other = ir.Constant(_VECTOR, [0.0] * LANES) if y is None else y

    def shuffle(parts: Sequence[Sequence[int]]) -> ir.Value:
        lanes = [i + LANES * side for part in parts for i, side in zip(part, sides, strict=True)]
        return b.shuffle_vector(x, other, ir.Constant(_INTEGERS, lanes))

    return b.fadd(shuffle(low), shuffle(high))


def _add_chunks(b: ir.IRBuilder, x: ir.Value, y: ir.Value | None, *, is_last: bool) -> ir.Value:
    """As `_add_interleaved`, for whole chunks of four numbers."""
    chunks = LANES // 4
    low = [c for c in range(chunks) if c % 2 == 0] if is_last else list(range(chunks // 2))
    high = [c for c in range(chunks) if c not in low]
    other = ir.Constant(_VECTOR, [0.0] * LANES) if y is None else y

    def shuffle(part: list[int]) -> ir.Value:
        lanes = [4 * c + i + side for side in (0, LANES) for c in part for i in range(4)]
        return b.shuffle_vector(x, other, ir.Constant(_INTEGERS, lanes))

    return b.fadd(shuffle(low), shuffle(high))


def _across(b: ir.IRBuilder, vector: ir.Value, combine: Emitter) -> ir.Value:
    """`combine` over the lanes of a vector."""
    distance = LANES // 2
    while distance:
        lanes = [(lane + distance) % LANES for lane in range(LANES)]
        vector = combine(b, vector, b.shuffle_vector(vector, vector, ir.Constant(_INTEGERS, lanes)))
        distance //= 2
    return b.extract_element(vector, ir.Constant(_I32, 0))


def _intrinsic(
    num_numbers: int = 0, num_literals: int = 0, result: Any = types.none, *, has_rows: bool = False
) -> Callable[[Emitter], Any]:
    """A function of integers, then of so many float32 numbers, then of so many literals, as code.

    Where it `has_rows`, it works on up to TILE_ROWS rows. The argument before the literals says on how many, the first
    literal how many there are in all: the two numbers that occur, of whole tiles and of the last, have code each.
    """

    def decorate(emit: Emitter) -> Any:
        def typed(typing_context: Any, *args: Any) -> Any:
            num_plain = len(args) - num_literals
            literals = [arg.literal_value for arg in args[num_plain:]]
            end = num_plain - has_rows
            plain = [types.int64] * (end - num_numbers) + [types.float32] * num_numbers + [types.int64] * has_rows

            def code(context: Any, b: ir.IRBuilder, signature: Any, values: Sequence[ir.Value]) -> ir.Value:
                if not has_rows:
                    value = emit(b, *values[:end], *literals)
                    return context.get_dummy_value() if value is None else value
                for num_here in {min(literals[0], TILE_ROWS), literals[0] % TILE_ROWS} - {0}:
                    with b.if_then(b.icmp_signed("==", values[end], ir.Constant(_I64, num_here))):
                        emit(b, *values[:end], num_here, *literals)
                return context.get_dummy_value()

            return result(*plain, *args[num_plain:]), code

        # Numba wants to know the arguments by name; the code builder stands where its typing context goes.
        typed.__name__, typed.__signature__ = emit.__name__, inspect.signature(emit)  # type: ignore[attr-defined]
        return intrinsic(prefer_literal=True)(typed)

    return decorate


# --- what the kernel calls --------------------------------------------------------------------------------------


@_intrinsic(num_numbers=1, num_literals=3, has_rows=True)
def scores_of_tile(
    b: ir.IRBuilder,
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
    """scores[row, 0:LANES] = scale * query[row] . keys[slot]; slots behind `last` repeat it. Strides are in bytes.

    The slots' values, which come next, are fetched meanwhile.
    """
    chunks = [(4 * at, min(LANES, head_dim - at)) for at in range(0, head_dim, LANES)]
    queries = [[_load(b, query, 4 * head_dim * row + at, lanes) for at, lanes in chunks] for row in range(num_here)]
    products: list[list[ir.Value]] = [[] for _ in range(num_here)]
    for slot in range(LANES):
        index = ir.Constant(_I64, slot)
        clipped = b.select(b.icmp_signed("<", index, last), index, last)
        _fetch(b, b.add(values, b.mul(clipped, value_stride)), head_dim, kind)
        key = b.add(keys, b.mul(clipped, key_stride))
        parts = [_load(b, key, at * _SIZES[kind] // 4, lanes, kind) for at, lanes in chunks]
        for row in range(num_here):
            product = b.fmul(queries[row][0], parts[0])
            for part, number in zip(parts[1:], queries[row][1:], strict=True):
                product = _fma(b, part, number, product)
            products[row].append(product)
    for row in range(num_here):
        sums = b.fmul(_sums(b, products[row]), _splat(b, scale))
        _store(b, sums, b.add(scores, b.mul(row_stride, ir.Constant(_I64, row))))


@_intrinsic()
def hide_from(b: ir.IRBuilder, scores: ir.Value, limit: ir.Value) -> None:
    """scores[limit:LANES] = -inf."""
    lanes = ir.Constant(_INTEGERS, list(range(LANES)))
    seen = b.icmp_signed("<", lanes, _splat(b, b.trunc(limit, _I32)))
    _store(b, b.select(seen, _load(b, scores), _constant(float("-inf"))), scores)


@_intrinsic()
def hide_at(
    b: ir.IRBuilder, scores: ir.Value, positions: ir.Value, last: ir.Value, query_position: ir.Value, window: ir.Value
) -> None:
    """-inf where the int32 position is above the query's, or `window` or more below it."""
    lanes, limit = ir.Constant(_INTEGERS, list(range(LANES))), _splat(b, b.trunc(last, _I32))
    pointer = _pointer(b, positions, 0, _INTEGERS)
    args = [pointer, ir.Constant(_I32, 4), b.icmp_signed("<=", lanes, limit), _integers(0)]
    loaded = _call(b, f"llvm.masked.load.v{LANES}i32.p0", _INTEGERS, args)
    distance = b.sub(_splat(b, b.trunc(query_position, _I32)), loaded)
    near = b.icmp_signed("<", distance, _splat(b, b.trunc(window, _I32)))
    seen = b.and_(near, b.icmp_signed(">=", distance, _integers(0)))
    _store(b, b.select(seen, _load(b, scores), _constant(float("-inf"))), scores)


@_intrinsic()
def soften(b: ir.IRBuilder, scores: ir.Value, num_tiles: ir.Value, maximum: ir.Value, total: ir.Value) -> None:
    """Of one row: *maximum = max(scores); scores = exp(scores - maximum); *total = sum of these."""
    size = ir.Constant(_I64, 4 * LANES)
    state = cgutils.alloca_once(b, _VECTOR)
    b.store(_constant(float("-inf")), state)
    with cgutils.for_range(b, num_tiles) as loop:
        tile = b.add(scores, b.mul(loop.index, size))
        b.store(_larger(b, b.load(state), _load(b, tile)), state)
    highest = _across(b, b.load(state), _larger)
    b.store(highest, b.inttoptr(maximum, _F32.as_pointer()))
    # Where nothing is visible, -inf less -inf would be no number.
    is_empty = b.fcmp_ordered("==", highest, ir.Constant(_F32, float("-inf")))
    base = _splat(b, b.select(is_empty, ir.Constant(_F32, 0.0), highest))
    b.store(_constant(0.0), state)
    with cgutils.for_range(b, num_tiles) as loop:
        tile = b.add(scores, b.mul(loop.index, size))
        weights = _exp(b, b.fsub(_load(b, tile), base))
        _store(b, weights, tile)
        b.store(b.fadd(b.load(state), weights), state)
    b.store(_across(b, b.load(state), ir.IRBuilder.fadd), b.inttoptr(total, _F32.as_pointer()))


@_intrinsic(num_literals=3, has_rows=True)
def weigh(
    b: ir.IRBuilder,
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
    num_passes = -(-num_here * len(chunks) // _ACCUMULATORS)
    size = -(-len(chunks) // num_passes)
    rows = [b.add(weights, b.mul(row_stride, ir.Constant(_I64, row))) for row in range(num_here)]
    for first in range(0, len(chunks), size):
        some = chunks[first : first + size]
        sums = [[cgutils.alloca_once(b, _VECTOR) for _ in some] for _ in rows]
        for row_sums in sums:
            for slot_sum in row_sums:
                b.store(_constant(0.0), slot_sum)
        with cgutils.for_range(b, num_slots) as loop:
            value = b.add(values, b.mul(loop.index, value_stride))
            parts = [_load(b, value, at * _SIZES[kind], lanes, kind) for at, lanes in some]
            if first == 0:
                _fetch(b, b.add(next_keys, b.mul(loop.index, key_stride)), head_dim, kind)
            offset = b.mul(loop.index, ir.Constant(_I64, 4))
            for row, row_sums in zip(rows, sums, strict=True):
                weight = _splat(b, b.load(b.inttoptr(b.add(row, offset), _F32.as_pointer()), align=4))
                for part, slot_sum in zip(parts, row_sums, strict=True):
                    b.store(_fma(b, part, weight, b.load(slot_sum)), slot_sum)
        for row, row_sums in enumerate(sums):
            for (at, _), slot_sum in zip(some, row_sums, strict=True):
                _store(b, b.load(slot_sum), out, 4 * (LANES * len(chunks) * row + at))


@_intrinsic()
def merge_totals(
    b: ir.IRBuilder,
    maximum: ir.Value,
    total: ir.Value,
    block_maximum: ir.Value,
    block_total: ir.Value,
    kept: ir.Value,
    added: ir.Value,
) -> None:
    """Of LANES rows: take a block into the softmax, and say with which factors its sum goes into the output."""
    old, new = _load(b, maximum), _load(b, block_maximum)
    highest = _larger(b, old, new)
    base = b.select(b.fcmp_ordered("==", highest, _constant(float("-inf"))), _constant(0.0), highest)
    decayed, block = b.fmul(_load(b, total), _exp(b, b.fsub(old, base))), _exp(b, b.fsub(new, base))
    whole = _fma(b, _load(b, block_total), block, decayed)
    is_seen = b.fcmp_ordered(">", whole, _constant(0.0))
    share = b.select(is_seen, b.fdiv(_constant(1.0), whole), _constant(0.0))
    _store(b, highest, maximum)
    _store(b, whole, total)
    _store(b, b.fmul(decayed, share), kept)
    _store(b, b.fmul(block, share), added)


@_intrinsic(num_literals=3, has_rows=True)
def merge_rows(
    b: ir.IRBuilder,
    out: ir.Value,
    block: ir.Value,
    kept: ir.Value,
    added: ir.Value,
    probes: ir.Value,
    measures: ir.Value,
    num_here: int,
    num_rows: int,
    head_dim: int,
    is_watched: bool,
) -> None:
    """out[row] = kept[row] * out[row] + added[row] * block[row].

    Where watched, over the numbers that `probes` marks with 1: squares of the step and of the new row, and the product
    of the new with the old, in measures[0:3] of every row.
    """
    sums = []
    for row in range(num_here):
        factors = [b.load(_pointer(b, x, 4 * row, _F32), align=4) for x in (kept, added)]
        keep, add = (_splat(b, factor) for factor in factors)
        row_sums = [_constant(0.0)] * 3
        for at in range(0, head_dim, LANES):
            lanes = min(LANES, head_dim - at)
            old = _load(b, out, 4 * (head_dim * row + at), lanes)
            new = _load(b, block, 4 * (LANES * num_vectors(head_dim) * row + at))
            now = _fma(b, new, add, b.fmul(old, keep))
            _store(b, now, out, 4 * (head_dim * row + at), lanes)
            if is_watched:
                probe, step = _load(b, probes, 4 * at), b.fsub(now, old)
                probed = b.fmul(now, probe)
                pairs = (b.fmul(step, probe), step), (probed, now), (probed, old)
                row_sums = [_fma(b, *pair, so_far) for pair, so_far in zip(pairs, row_sums, strict=True)]
        sums += row_sums
    if is_watched:
        for first in range(0, len(sums), LANES):
            _store(b, _sums(b, sums[first : first + LANES]), measures, 4 * first)


@_intrinsic(result=types.float32)
def read_number(b: ir.IRBuilder, address: ir.Value) -> ir.Value:
    return b.load(b.inttoptr(address, _F32.as_pointer()), align=4)


@_intrinsic(num_numbers=1)
def write_number(b: ir.IRBuilder, address: ir.Value, number: ir.Value) -> None:
    b.store(number, b.inttoptr(address, _F32.as_pointer()), align=4)


@_intrinsic(result=types.int64)
def read_integer(b: ir.IRBuilder, address: ir.Value) -> ir.Value:
    """An int32."""
    return b.sext(b.load(b.inttoptr(address, _I32.as_pointer()), align=4), _I64)


@_intrinsic()
def write_integer(b: ir.IRBuilder, address: ir.Value, number: ir.Value) -> None:
    """An int32."""
    b.store(b.trunc(number, _I32), b.inttoptr(address, _I32.as_pointer()), align=4)


@_intrinsic(result=types.int64)
def draw(b: ir.IRBuilder, counter: ir.Value) -> ir.Value:
    """The next number of an int64 that threads count on together."""
    return b.atomic_rmw("add", b.inttoptr(counter, _I64.as_pointer()), ir.Constant(_I64, 1), "acq_rel")


@_intrinsic(result=types.int64)
def look_at(b: ir.IRBuilder, counter: ir.Value) -> ir.Value:
    """An int64 that another thread sets; what was written before that is seen."""
    return b.load_atomic(b.inttoptr(counter, _I64.as_pointer()), ordering="acquire", align=8)


@_intrinsic()
def set_to(b: ir.IRBuilder, counter: ir.Value, number: ir.Value) -> None:
    b.store_atomic(number, b.inttoptr(counter, _I64.as_pointer()), ordering="release", align=8)


@_intrinsic()
def wait_for(b: ir.IRBuilder, counter: ir.Value, number: ir.Value) -> None:
    """Wait until an int64 that another thread sets is not below `number`.

    That takes no longer than a block, unless the other thread has lost its core: then this one offers its own.
    """
    spins = cgutils.alloca_once_value(b, ir.Constant(_I64, 0))
    loop, done = b.append_basic_block("wait"), b.append_basic_block("reached")
    yielding = b.append_basic_block("yield")
    again = b.append_basic_block("again")
    b.branch(loop)
    b.position_at_end(loop)
    seen = b.load_atomic(b.inttoptr(counter, _I64.as_pointer()), ordering="acquire", align=8)
    spin = b.add(b.load(spins), ir.Constant(_I64, 1))
    b.store(spin, spins)
    b.cbranch(b.icmp_signed(">=", seen, number), done, again)
    b.position_at_end(again)
    is_long = b.icmp_unsigned(">", spin, ir.Constant(_I64, _SPINS))
    b.cbranch(b.and_(is_long, ir.Constant(_I1, _CAN_YIELD)), yielding, loop)
    b.position_at_end(yielding)
    if _CAN_YIELD:
        _call(b, "sched_yield", _I32, [])
    b.branch(loop)
    b.position_at_end(done)
