"""Vectors for the decode attention on a CPU, written as LLVM instructions for Numba to put into its kernel.

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

_FEATURES = llvm.get_host_cpu_features()
IS_WIDE, HAS_AVX2 = bool(_FEATURES.get("avx512f")), bool(_FEATURES.get("avx2") and _FEATURES.get("fma"))
LANES = 16 if IS_WIDE else 8  # numbers in a vector; where registers are narrower LLVM takes several for one
TILE_ROWS = 4  # rows of queries that go through a block together

# What keys and values are stored as; the last: keys in 8 bits, and values in 4.
FLOAT32, BFLOAT16, INT8, INT4, INT8_INT4 = 0, 1, 2, 3, 4
SIZES = (4, 2, 4, 4, 4)  # bytes of a number, as tiles take it: codes are made wide in scratch memory first
STORED_BITS = (32, 16, 8, 4, 8)
LINE_BYTES = 64  # of memory: counters of different use have a line each

I1, I8, I16, I32, I64 = (ir.IntType(bits) for bits in (1, 8, 16, 32, 64))
F32 = ir.FloatType()
VECTOR = ir.VectorType(F32, LANES)
INTEGERS = ir.VectorType(I32, LANES)
F64 = ir.DoubleType()
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


def in_lines(num_bytes: int) -> int:
    """Bytes rounded up to whole lines of memory."""
    return -(-num_bytes // LINE_BYTES) * LINE_BYTES


def same(vector: ir.VectorType, value: float) -> ir.Constant:
    return ir.Constant(vector, [value] * vector.count)


def constant(value: float) -> ir.Constant:
    return same(VECTOR, value)


def integers(value: int) -> ir.Constant:
    return same(INTEGERS, value)


def _mask(num_lanes: int) -> ir.Constant:
    return ir.Constant(ir.VectorType(I1, LANES), [int(lane < num_lanes) for lane in range(LANES)])


class Builder:
    """A builder of llvmlite, with vectors beside its instructions."""

    def __init__(self, instructions: ir.IRBuilder) -> None:
        self._instructions = instructions

    def __getattr__(self, name: str) -> Any:
        return getattr(self._instructions, name)

    def load_at(self, address: ir.Value, offset: int, kind: ir.Type, align: int = 4) -> ir.Value:
        return self.load(self.pointer_to(address, offset, kind), align=align)

    def store_at(self, value: ir.Value, address: ir.Value, offset: int = 0, align: int = 4) -> None:
        self.store(value, self.pointer_to(address, offset, value.type), align=align)

    def pointer_to(self, address: ir.Value, offset: int, kind: ir.Type) -> ir.Value:
        return self.inttoptr(self.add(address, ir.Constant(I64, offset)), kind.as_pointer())

    def advanced(self, address: ir.Value, stride: ir.Value | int, index: ir.Value | int) -> ir.Value:
        """The address of an element, so many strides further on."""
        stride, index = (x if isinstance(x, ir.Value) else ir.Constant(I64, x) for x in (stride, index))
        return self.add(address, self.mul(stride, index))

    def call_function(self, name: str, result: ir.Type, args: Sequence[ir.Value]) -> ir.Value:
        function = cgutils.get_or_insert_function(self.module, ir.FunctionType(result, [x.type for x in args]), name)
        return self.call(function, args)

    def in_order(self, vector: ir.Value) -> ir.Value:
        """The same, computed at this place: in LLVM's own order long sums need more registers than there are."""
        if not HAS_AVX2:
            return vector
        return self.asm(ir.FunctionType(vector.type, [vector.type]), "", "=v,0", [vector], side_effect=True)

    def fma(self, x: ir.Value, y: ir.Value, z: ir.Value) -> ir.Value:
        return self.call_function(f"llvm.fma.v{x.type.count}f32", x.type, [x, y, z])

    def splat(self, number: ir.Value, num_lanes: int = LANES) -> ir.Value:
        nothing = ir.Constant(ir.VectorType(number.type, num_lanes), ir.Undefined)
        one = self.insert_element(nothing, number, ir.Constant(I32, 0))
        return self.shuffle_vector(one, nothing, same(ir.VectorType(I32, num_lanes), 0))

    def number_at(self, row: ir.Value, index: ir.Value, kind: ir.Type) -> ir.Value:
        """The number of 4 bytes with this index."""
        return self.load(self.inttoptr(self.advanced(row, 4, index), kind.as_pointer()), align=4)

    def read(self, address: ir.Value, offset: int = 0, num_lanes: int = LANES, kind: int = FLOAT32) -> ir.Value:
        """A vector of float32; lanes from `num_lanes` on are 0, and their memory is not touched."""
        if kind != BFLOAT16:
            return self._read(address, offset, num_lanes, F32, "f32", 4)
        loaded = self._read(address, offset, num_lanes, I16, "i16", 2)
        return self.bitcast(self.shl(self.zext(loaded, INTEGERS), integers(16)), VECTOR)

    def read_codes(self, address: ir.Value, offset: int, num_lanes: int) -> ir.Value:
        """A vector of float32 from numbers of 8 bits with a sign; lanes from `num_lanes` on are 0."""
        return self.sitofp(self.sext(self._read(address, offset, num_lanes, I8, "i8", 1), INTEGERS), VECTOR)

    def read_halves(self, address: ir.Value, offset: int, num_lanes: int) -> tuple[ir.Value, ir.Value]:
        """Two vectors of float32 from the lower and the upper 4 bits of bytes, without a sign."""
        both = self.zext(self._read(address, offset, num_lanes, I8, "i8", 1), INTEGERS)
        return self.sitofp(self.and_(both, integers(15)), VECTOR), self.sitofp(self.lshr(both, integers(4)), VECTOR)

    def _read(
        self, address: ir.Value, offset: int, num_lanes: int, element: ir.Type, suffix: str, size: int
    ) -> ir.Value:
        vector = ir.VectorType(element, LANES)
        pointer = self.pointer_to(address, offset, vector)
        if num_lanes >= LANES:
            return self.load(pointer, align=size)
        args = [pointer, ir.Constant(I32, size), _mask(num_lanes), same(vector, 0)]
        return self.call_function(f"llvm.masked.load.v{LANES}{suffix}.p0", vector, args)

    def write(self, vector: ir.Value, address: ir.Value, offset: int = 0, num_lanes: int = LANES) -> None:
        pointer = self.pointer_to(address, offset, VECTOR)
        if num_lanes >= LANES:
            self.store(vector, pointer, align=4)
        else:
            args = [vector, pointer, ir.Constant(I32, 4), _mask(num_lanes)]
            self.call_function(f"llvm.masked.store.v{LANES}f32.p0", ir.VoidType(), args)

    def fetch(self, address: ir.Value, head_dim: int, kind: int) -> None:
        """Have a row of keys or values on its way while others are worked on."""
        self.prefetch(address, 0, head_dim * STORED_BITS[kind] // 8)

    def prefetch(self, address: ir.Value, first: int, num_bytes: int) -> None:
        """Have `num_bytes` from `first` bytes after an address on their way."""
        for at in range(first, first + num_bytes, LINE_BYTES):
            # for reading, to be kept in all caches, as data
            hints = [ir.Constant(I32, hint) for hint in (0, 3, 1)]
            self.call_function("llvm.prefetch.p0", ir.VoidType(), [self.pointer_to(address, at, ir.IntType(8)), *hints])

    def larger(self, x: ir.Value, y: ir.Value) -> ir.Value:
        return self.select(self.fcmp_ordered(">", x, y), x, y)

    def exp(self, x: ir.Value) -> ir.Value:
        """exp(x) for x <= 0, to 1e-7 of it; 0 for -inf."""
        shifted = self.fma(x, constant(_LOG2_E), constant(_ROUNDING))
        whole = self.fsub(shifted, constant(_ROUNDING))
        rest = self.fma(whole, constant(-_LN_2_LOW), self.fma(whole, constant(-_LN_2_HIGH), x))
        power = constant(_EXP_COEFFICIENTS[0])
        for coefficient in _EXP_COEFFICIENTS[1:]:
            power = self.fma(power, rest, constant(coefficient))
        power = self.fadd(self.fma(power, self.fmul(rest, rest), rest), constant(1.0))
        exponent = self.shl(self.bitcast(shifted, INTEGERS), integers(23))
        scaled = self.bitcast(self.add(self.bitcast(power, INTEGERS), exponent), VECTOR)
        return self.select(self.fcmp_ordered("<", x, constant(_LOWEST_EXPONENT)), constant(0.0), scaled)

    def silu(self, x: ir.Value) -> ir.Value:
        """x / (1 + exp(-x))."""
        power = self.exp(self.fneg(self.call_function(f"llvm.fabs.v{LANES}f32", VECTOR, [x])))
        above = self.select(self.fcmp_ordered(">=", x, constant(0.0)), constant(1.0), power)
        return self.fmul(x, self.fdiv(above, self.fadd(power, constant(1.0))))

    def lane_sums(self, vectors: Sequence[ir.Value]) -> ir.Value:
        """The sums of LANES vectors, or of fewer, as the lanes of one vector: a transposition that adds on its way."""
        width = 1
        while width < LANES:
            pairs = [vectors[i : i + 2] for i in range(0, len(vectors), 2)]
            vectors = [self._add_interleaved(*pair, width=width) for pair in pairs]
            width *= 2
        return vectors[0]

    def _add_interleaved(self, x: ir.Value, y: ir.Value | None = None, *, width: int) -> ir.Value:
        """One step of `lane_sums`: halves of x and of y are added, in pieces that shuffle cheaply."""
        other, chunks, halves = constant(0.0) if y is None else y, LANES // 4, list[ir.Value]()
        for half in range(2):
            if width < 4:  # within chunks of four numbers: one of x and one of y by turns, or two
                pairs = (
                    [(i, side) for i in range(2) for side in range(2)]
                    if width == 1
                    else [(0, 0), (1, 0), (0, 1), (1, 1)]
                )
                lanes = [LANES * side + first + 2 * half + i for first in range(0, LANES, 4) for i, side in pairs]
            else:  # whole chunks
                own = (
                    range(half, chunks, 2)
                    if 2 * width == LANES
                    else range(half * chunks // 2, (half + 1) * chunks // 2)
                )
                lanes = [LANES * side + 4 * chunk + i for side in range(2) for chunk in own for i in range(4)]
            halves.append(self.shuffle_vector(x, other, ir.Constant(INTEGERS, lanes)))
        return self.fadd(*halves)

    def across(self, vector: ir.Value, combine: Emitter) -> ir.Value:
        """`combine` over the lanes of a vector."""
        num_lanes = vector.type.count
        distance = num_lanes // 2
        while distance:
            lanes = ir.Constant(
                ir.VectorType(I32, num_lanes), [(lane + distance) % num_lanes for lane in range(num_lanes)]
            )
            vector = combine(vector, self.shuffle_vector(vector, vector, lanes))
            distance //= 2
        return self.extract_element(vector, ir.Constant(I32, 0))


def kernel_part(
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
                    value = emit(Builder(b), *values[:end], *literals)
                    return context.get_dummy_value() if value is None else value
                for num_here in {min(literals[0], TILE_ROWS), literals[0] % TILE_ROWS} - {0}:
                    with b.if_then(b.icmp_signed("==", values[end], ir.Constant(I64, num_here))):
                        emit(Builder(b), *values[:end], num_here, *literals)
                return context.get_dummy_value()

            return result(*plain, *args[num_plain:]), code

        # Numba wants to know the arguments by name; the code builder stands where its typing context goes.
        typed.__name__, typed.__signature__ = emit.__name__, inspect.signature(emit)  # type: ignore[attr-defined]
        return intrinsic(prefer_literal=True)(typed)

    return decorate
