"""Products with packed weights on a CPU, compiled by Numba: one for few tokens, one for many.

For few tokens a group is unpacked into registers as it is read, so that every product reads the weights once from
memory. For many, 16 rows are unpacked into a panel that stays in the first cache while all tokens pass by.
Activations are rounded to bytes in groups as long as those of the weights; sums are exact within a group.
"""

# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterable
from functools import cache, lru_cache
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import torch
from numba import carray, literally, njit
from ondevice.kernels.cpu import byte_vectors, counters, vectors
from ondevice.kernels.cpu.building import built, last_change
from ondevice.kernels.cpu.byte_vectors import multiply_groups, round_group, unpack_group
from ondevice.kernels.cpu.counters import draw, read_integer, write_integer
from ondevice.kernels.cpu.threads import prepare_helpers, run_in_threads
from ondevice.kernels.packed import FORMATS, TILE_ROWS, Format, PackedRows, PackedWeight
from torch import Tensor

FEW_TOKENS = 8  # up to so many a panel does not pay
_TOKENS_PER_BLOCK = 256  # whose activations stay in the second cache
_PANEL_BYTES = 20_000  # of the first cache
_COUNTER_BYTES = 128
_SMALL = 32 * 1024  # activations that one thread rounds faster than several begin

_ADDRESSES = ("x", "rounded", "scales", "sums", "weights", "bias", "out", "counters", "panels")
_SIZES = (
    *("num_tokens", "num_groups", "num_tiles", "out_stride", "panel_groups", "panel_bytes"),
    *("tokens_per_block", "tiles_per_draw"),
)
_CALL = np.dtype([(name, np.int64) for name in (*_ADDRESSES, *_SIZES)])
_PACKED_ADDRESSES, _PACKED_SIZES = (struct.Struct(f"={len(names)}q") for names in (_ADDRESSES, _SIZES))


def multiply(x: Tensor, weight: PackedWeight, bias: Tensor | None) -> Tensor:
    """x @ weight.T + bias.

    Args:
        x: (num_tokens, in_features), float32, contiguous.
        bias: (out_features,) float32.

    Returns:
        (num_tokens, out_features) float32.
    """
    num_rows, num_columns = weight.shape
    num_tokens, num_threads = x.shape[0], torch.get_num_threads()
    assert x.shape[1] == num_columns
    assert x.is_contiguous()
    assert x.dtype == torch.float32
    num_padded = -(-num_rows // TILE_ROWS) * TILE_ROWS
    if bias is not None and bias.shape[0] != num_padded:
        bias = torch.cat((bias, bias.new_zeros(num_padded - num_rows)))
    out = torch.empty(num_tokens, num_padded)
    first = 0
    for part in weight.parts:
        _multiply_part(x, part, bias, out, first, num_threads)
        first += part.num_rows
    return out if num_padded == num_rows else out[:, :num_rows].contiguous()


def _multiply_part(x: Tensor, rows: PackedRows, bias: Tensor | None, out: Tensor, first: int, num_threads: int) -> None:
    """Fill the columns of `out` from `first` on."""
    num_tiles, num_groups, _ = rows.data.shape
    layout = _layout(rows.form, num_groups, num_tiles, x.shape[0], out.stride(0), num_threads)
    memory = torch.empty(layout.num_bytes, dtype=torch.uint8)
    address = memory.data_ptr()
    ctypes.memset(address, 0, _COUNTER_BYTES)
    call = _PACKED_ADDRESSES.pack(
        x.data_ptr(),
        address + _COUNTER_BYTES,
        address + layout.scales,
        address + layout.sums,
        rows.data.data_ptr(),
        0 if bias is None else bias.data_ptr() + 4 * first,
        out.data_ptr() + 4 * first,
        address,
        address + layout.panels,
    )
    call += layout.sizes
    run_in_threads(layout.round, call, 1 if x.numel() <= _SMALL else num_threads)
    run_in_threads(layout.multiply, call, num_threads, is_short=x.shape[0] <= FEW_TOKENS)


class _Layout(NamedTuple):
    """What the products of one size have in common: while decoding there are a hundred a token.

    Attributes:
        num_bytes: of one piece of memory: two counters, rounded activations, their scales and sums, a panel a thread.
        scales, sums, panels: where in it those begin.
        sizes: the second part of a call.
        round, multiply: the kernels.
    """

    num_bytes: int
    scales: int
    sums: int
    panels: int
    sizes: bytes
    round: Any
    multiply: Any


@lru_cache(maxsize=1024)
def _layout(
    form: Format, num_groups: int, num_tiles: int, num_tokens: int, out_stride: int, num_threads: int
) -> _Layout:
    is_few = num_tokens <= FEW_TOKENS
    panel_groups = 0 if is_few else min(num_groups, _PANEL_BYTES // form.panel_bytes)
    panel_bytes = panel_groups * form.panel_bytes
    num_rounded, factor_bytes = num_tokens * num_groups * form.group_size, _in_lines(4 * num_tokens * num_groups)
    scales, sums, panels, end = accumulate(
        (_COUNTER_BYTES + _in_lines(num_rounded), factor_bytes, factor_bytes, num_threads * panel_bytes)
    )
    sizes = _PACKED_SIZES.pack(
        num_tokens,
        num_groups,
        num_tiles,
        out_stride * 4,
        panel_groups,
        panel_bytes,
        min(num_tokens, _TOKENS_PER_BLOCK),
        max(1, num_tiles // (8 * num_threads)),
    )
    return _Layout(end, scales, sums, panels, sizes, _kernel(_ROUND, form), _kernel(_FEW if is_few else _MANY, form))


def prepare(weights: Iterable[PackedWeight]) -> None:
    """Compile what products with these weights need, which otherwise the first of them would wait for."""
    for form in {part.form for weight in weights for part in weight.parts}:
        for stage in (_ROUND, _FEW, _MANY):
            _kernel(stage, form)
    prepare_helpers()


def _in_lines(num_bytes: int) -> int:
    return -(-num_bytes // 64) * 64


_ROUND, _FEW, _MANY = 0, 1, 2


def _kernel(stage: int, form: Format) -> Any:
    return _callable(stage, form.bits, int(form.has_offset))


@cache
def _callable(stage: int, bits: int, has_offset: int) -> Any:
    return ctypes.CFUNCTYPE(None, ctypes.c_char_p)(_compiled(stage, bits, has_offset).address)


@cache
def _compiled(stage: int, bits: int, has_offset: int) -> Any:
    """One kernel; later processes find it in Numba's cache."""
    from ondevice.kernels import packed

    parts_changed = last_change((byte_vectors, counters, packed, vectors))
    form = FORMATS[bits, bool(has_offset)]
    group_size, group_bytes, panel_bytes = form.group_size, form.group_bytes, form.panel_bytes
    level, largest_step = byte_vectors.LEVEL, byte_vectors.largest_step()

    # The stages are branches, of which Numba compiles the one that is taken: a function in the key of its cache would
    # be another one in every process.
    def work(call):  # type: ignore[no-untyped-def]
        _ = parts_changed, level  # part of the cache's key
        if stage == _ROUND:
            _round(carray(call, 1, _CALL)[0], group_size, group_bytes, panel_bytes, bits, has_offset)
        elif stage == _FEW:
            _few(carray(call, 1, _CALL)[0], group_size, group_bytes, panel_bytes, largest_step, bits, has_offset)
        else:
            _many(carray(call, 1, _CALL)[0], group_size, group_bytes, panel_bytes, largest_step, bits, has_offset)

    return built(work)


_jit = njit(no_cpython_wrapper=True, no_cfunc_wrapper=True)  # called by the kernel alone


@_jit
def _round(call: Any, group_size: int, group_bytes: int, panel_bytes: int, bits: int, has_offset: int) -> None:
    """One thread: round the activations of tokens that no other has taken."""
    literally(bits), literally(has_offset)
    num_groups = call.num_groups
    while True:
        token = draw(call.counters)
        if token >= call.num_tokens:
            return
        for group in range(num_groups):
            at = token * num_groups + group
            x = call.x + 4 * group_size * at
            round_group(x, call.rounded + group_size * at, call.scales + 4 * at, call.sums + 4 * at, bits, has_offset)


@_jit
def _few(
    call: Any, group_size: int, group_bytes: int, panel_bytes: int, largest_step: int, bits: int, has_offset: int
) -> None:
    """One thread: tiles that no other has taken, straight from their packed form."""
    literally(largest_step), literally(bits), literally(has_offset)
    num_groups, per_draw = call.num_groups, call.tiles_per_draw
    while True:
        first = draw(call.counters + 64) * per_draw
        if first >= call.num_tiles:
            return
        for tile in range(first, min(first + per_draw, call.num_tiles)):
            _begin(call, tile, 0, call.num_tokens)
            _add_tile(
                call,
                call.weights + tile * num_groups * group_bytes,
                group_bytes,
                tile,
                0,
                num_groups,
                0,
                call.num_tokens,
                largest_step,
                group_size,
                bits,
                has_offset,
                1,
            )


@_jit
def _many(
    call: Any, group_size: int, group_bytes: int, panel_bytes: int, largest_step: int, bits: int, has_offset: int
) -> None:
    """One thread: tiles that no other has taken, for a block of tokens, from panels."""
    literally(largest_step), literally(bits), literally(has_offset)
    num_groups, num_tiles = call.num_groups, call.num_tiles
    num_blocks = -(-call.num_tokens // call.tokens_per_block)
    panel = call.panels + draw(call.counters + 8) * call.panel_bytes
    while True:
        task = draw(call.counters + 64)
        if task >= num_blocks * num_tiles:
            return
        tile = task % num_tiles
        first = task // num_tiles * call.tokens_per_block
        num_tokens = min(call.tokens_per_block, call.num_tokens - first)
        _begin(call, tile, first, num_tokens)
        weights = call.weights + tile * num_groups * group_bytes
        for start in range(0, num_groups, call.panel_groups):
            num_here = min(call.panel_groups, num_groups - start)
            for group in range(num_here):
                unpack_group(weights + (start + group) * group_bytes, panel + group * panel_bytes, bits, has_offset)
            _add_tile(
                call,
                panel,
                panel_bytes,
                tile,
                start,
                num_here,
                first,
                num_tokens,
                largest_step,
                group_size,
                bits,
                has_offset,
                0,
            )


@_jit
def _begin(call: Any, tile: int, first: int, num_tokens: int) -> None:
    """Outputs of a tile before anything is added: the bias, or zero."""
    for token in range(first, first + num_tokens):
        out = call.out + token * call.out_stride + 4 * TILE_ROWS * tile
        for row in range(TILE_ROWS):
            write_integer(
                out + 4 * row, read_integer(call.bias + 4 * (TILE_ROWS * tile + row)) if call.bias != 0 else 0
            )


@_jit
def _add_tile(
    call: Any,
    weights: int,
    stride: int,
    tile: int,
    start: int,
    num_here: int,
    first: int,
    num_tokens: int,
    largest_step: int,
    group_size: int,
    bits: int,
    has_offset: int,
    is_packed: int,
) -> None:
    """Add the products of some groups of a tile, for some tokens."""
    literally(largest_step), literally(bits), literally(has_offset), literally(is_packed)
    num_groups = call.num_groups
    row, factor_row = num_groups * group_size, 4 * num_groups
    done = 0
    while done < num_tokens:
        token, left = first + done, num_tokens - done
        x = call.rounded + token * row + start * group_size
        scales = call.scales + token * factor_row + 4 * start
        sums = call.sums + token * factor_row + 4 * start
        out = call.out + token * call.out_stride + 4 * TILE_ROWS * tile
        if left >= largest_step:
            multiply_groups(
                weights, stride, num_here, x, row, scales, sums, factor_row, out, call.out_stride,
                largest_step, bits, has_offset, is_packed,
            )  # fmt: skip
            done += largest_step
        elif left >= 2:
            multiply_groups(
                weights, stride, num_here, x, row, scales, sums, factor_row, out, call.out_stride,
                2, bits, has_offset, is_packed,
            )  # fmt: skip
            done += 2
        else:
            multiply_groups(
                weights, stride, num_here, x, row, scales, sums, factor_row, out, call.out_stride,
                1, bits, has_offset, is_packed,
            )  # fmt: skip
            done += 1
