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
from ondevice.kernels.cpu.counters import draw
from ondevice.kernels.cpu.threads import prepare_helpers, run_in_threads
from ondevice.kernels.packed import FORMATS, TILE_ROWS, Format, PackedRows, PackedWeight
from torch import Tensor

FEW_TOKENS = 8  # up to so many a panel does not pay
_BLOCK_BYTES = 400_000  # of activations, which stay in the second cache
_PANEL_BYTES = 16_200  # of the first cache
_ZEROS, _COUNTER_BYTES = 128, 256  # in the same piece of memory, behind two counters; what is 0 is so for two tiles
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
    multiple = TILE_ROWS * (1 if num_tokens <= FEW_TOKENS else byte_vectors.tiles_at_once())
    num_padded = -(-num_rows // multiple) * multiple
    if bias is not None and bias.shape[0] != num_padded:
        bias = torch.cat((bias, bias.new_zeros(num_padded - num_rows)))
    step = _step(num_tokens)
    out = torch.empty(-(-num_tokens // step) * step, num_padded)  # what is computed of whole steps has a place
    first = 0
    for part in weight.parts:
        _multiply_part(x, part, bias, out, first, num_threads)
        first += part.num_rows
    out = out[:num_tokens]
    return out if num_padded == num_rows else out[:, :num_rows].contiguous()


def _step(num_tokens: int) -> int:
    """How many tokens go through a group together; those that are missing in the last step are 0."""
    return num_tokens if num_tokens <= 2 else byte_vectors.largest_step()


def _multiply_part(x: Tensor, rows: PackedRows, bias: Tensor | None, out: Tensor, first: int, num_threads: int) -> None:
    """Fill the columns of `out` from `first` on."""
    num_tiles, num_groups, _ = rows.data.shape
    layout = _layout(rows.form, num_groups, num_tiles, x.shape[0], out.stride(0), num_threads)
    memory = torch.empty(layout.num_bytes, dtype=torch.uint8)
    address = memory.data_ptr()
    ctypes.memset(address, 0, _COUNTER_BYTES)
    for start, length in layout.missing:
        ctypes.memset(address + start, 0, length)
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
        missing: where the last step begins in the first three, and its bytes, if tokens are missing in it.
        sizes: the second part of a call.
        round, multiply: the kernels.
    """

    num_bytes: int
    scales: int
    sums: int
    panels: int
    missing: tuple[tuple[int, int], ...]
    sizes: bytes
    round: Any
    multiply: Any


@lru_cache(maxsize=1024)
def _layout(
    form: Format, num_groups: int, num_tiles: int, num_tokens: int, out_stride: int, num_threads: int
) -> _Layout:
    is_few, step = num_tokens <= FEW_TOKENS, _step(num_tokens)
    num_steps = -(-num_tokens // step)
    at_once = byte_vectors.tiles_at_once()
    panel_groups = 0 if is_few else min(num_groups, _PANEL_BYTES // form.panel_bytes)
    panel_bytes = panel_groups * form.panel_bytes * at_once
    step_bytes = step * num_groups * form.group_size, 4 * step * num_groups, 4 * step * num_groups
    starts = tuple(accumulate((_in_lines(num_steps * size) for size in step_bytes), initial=_COUNTER_BYTES))
    lasts = ((start + (num_steps - 1) * size, size) for start, size in zip(starts, step_bytes, strict=False))
    sizes = _PACKED_SIZES.pack(
        num_tokens,
        num_groups,
        num_tiles,
        out_stride * 4,
        panel_groups,
        panel_bytes,
        step * min(num_steps, max(8, _BLOCK_BYTES // (step * num_groups * form.group_size))),
        max(1, num_tiles // (8 * num_threads)),
    )
    return _Layout(
        starts[3] + num_threads * panel_bytes,
        *starts[1:],
        tuple(lasts) if num_tokens % step else (),
        sizes,
        _kernel(_ROUND, form, step),
        _kernel(_FEW if is_few else _MANY, form, step),
    )


def prepare(weights: Iterable[PackedWeight]) -> None:
    """Compile what products with these weights need, which otherwise the first of them would wait for."""
    for form in {part.form for weight in weights for part in weight.parts}:
        for num_tokens in (1, 2, FEW_TOKENS, FEW_TOKENS + 1):
            step = _step(num_tokens)
            _kernel(_ROUND, form, step)
            _kernel(_FEW if num_tokens <= FEW_TOKENS else _MANY, form, step)
    prepare_helpers()


def _in_lines(num_bytes: int) -> int:
    return -(-num_bytes // 64) * 64


_ROUND, _FEW, _MANY = 0, 1, 2


def _kernel(stage: int, form: Format, step: int) -> Any:
    return _callable(stage, form.bits, int(form.has_offset), step)


@cache
def _callable(stage: int, bits: int, has_offset: int, step: int) -> Any:
    return ctypes.CFUNCTYPE(None, ctypes.c_char_p)(_compiled(stage, bits, has_offset, step).address)


@cache
def _compiled(stage: int, bits: int, has_offset: int, step: int) -> Any:
    """One kernel; later processes find it in Numba's cache."""
    from ondevice.kernels import packed

    parts_changed = last_change((byte_vectors, counters, packed, vectors))
    form = FORMATS[bits, bool(has_offset)]
    group_size, group_bytes, panel_bytes = form.group_size, form.group_bytes, form.panel_bytes
    level, at_once = byte_vectors.LEVEL, byte_vectors.tiles_at_once()

    # The stages are branches, of which Numba compiles the one that is taken: a function in the key of its cache would
    # be another one in every process.
    def work(call):  # type: ignore[no-untyped-def]
        _ = parts_changed, level  # part of the cache's key
        if stage == _ROUND:
            _round(carray(call, 1, _CALL)[0], group_size, group_bytes, panel_bytes, step, bits, has_offset)
        elif stage == _FEW:
            _few(carray(call, 1, _CALL)[0], group_size, group_bytes, panel_bytes, step, bits, has_offset)
        else:
            _many(carray(call, 1, _CALL)[0], group_size, group_bytes, panel_bytes, step, at_once, bits, has_offset)

    return built(work)


_jit = njit(no_cpython_wrapper=True, no_cfunc_wrapper=True)  # called by the kernel alone


@_jit
def _round(
    call: Any, group_size: int, group_bytes: int, panel_bytes: int, step: int, bits: int, has_offset: int
) -> None:
    """One thread: round the activations of steps that no other has taken.

    Those of a step lie side by side, four bytes of each token after the other, so that a product reads on and on.
    """
    literally(step), literally(bits), literally(has_offset)
    num_groups = call.num_groups
    while True:
        first = draw(call.counters) * step
        if first >= call.num_tokens:
            return
        for group in range(num_groups):
            at = first * num_groups + group * step  # of numbers that each group has one of for each token
            for i in range(min(step, call.num_tokens - first)):
                round_group(
                    call.x + 4 * group_size * ((first + i) * num_groups + group),
                    call.rounded + at * group_size + 4 * i,
                    4 * step,
                    call.scales + 4 * (at + i),
                    call.sums + 4 * (at + i),
                    bits,
                    has_offset,
                )


@_jit
def _few(call: Any, group_size: int, group_bytes: int, panel_bytes: int, step: int, bits: int, has_offset: int) -> None:
    """One thread: tiles that no other has taken, straight from their packed form."""
    literally(step), literally(bits), literally(has_offset)
    num_groups, per_draw = call.num_groups, call.tiles_per_draw
    while True:
        first = draw(call.counters + 64) * per_draw
        if first >= call.num_tiles:
            return
        for tile in range(first, min(first + per_draw, call.num_tiles)):
            _add_tiles(
                call,
                call.weights + tile * num_groups * group_bytes,
                group_bytes,
                0,
                tile,
                0,
                num_groups,
                0,
                call.num_tokens,
                step,
                group_size,
                bits,
                has_offset,
                1,
                1,
            )


@_jit
def _many(
    call: Any,
    group_size: int,
    group_bytes: int,
    panel_bytes: int,
    step: int,
    at_once: int,
    bits: int,
    has_offset: int,
) -> None:
    """One thread: tiles that no other has taken, some at once, for a block of tokens, from panels.

    Where there are fewer left than go at once, the last one is unpacked again: there is room for what that gives.
    """
    literally(step), literally(at_once), literally(bits), literally(has_offset)
    num_groups = call.num_groups
    num_turns = -(-call.num_tiles // at_once)
    num_blocks = -(-call.num_tokens // call.tokens_per_block)
    panel = call.panels + draw(call.counters + 8) * call.panel_bytes
    tile_bytes = call.panel_bytes // at_once
    while True:
        task = draw(call.counters + 64)
        if task >= num_blocks * num_turns:
            return
        tile = task % num_turns * at_once
        first = task // num_turns * call.tokens_per_block
        num_tokens = min(call.tokens_per_block, call.num_tokens - first)
        for start in range(0, num_groups, call.panel_groups):
            num_here = min(call.panel_groups, num_groups - start)
            for i in range(at_once):
                weights = call.weights + (min(tile + i, call.num_tiles - 1) * num_groups + start) * group_bytes
                for group in range(num_here):
                    to = panel + i * tile_bytes + group * panel_bytes
                    unpack_group(weights + group * group_bytes, to, bits, has_offset)
            _add_tiles(
                call,
                panel,
                panel_bytes,
                tile_bytes,
                tile,
                start,
                num_here,
                first,
                num_tokens,
                step,
                group_size,
                bits,
                has_offset,
                0,
                at_once,
            )


@_jit
def _add_tiles(
    call: Any,
    weights: int,
    stride: int,
    tile_stride: int,
    tile: int,
    start: int,
    num_here: int,
    first: int,
    num_tokens: int,
    step: int,
    group_size: int,
    bits: int,
    has_offset: int,
    is_packed: int,
    num_tiles: int,
) -> None:
    """Add the products of some groups of some tiles, for some tokens; `first` is the first of a step."""
    literally(step), literally(bits), literally(has_offset), literally(is_packed), literally(num_tiles)
    column, zeros = 4 * TILE_ROWS * tile, call.counters + _ZEROS
    for token in range(first, first + num_tokens, step):
        at = token * call.num_groups + start * step  # of numbers that each group has one of for each token
        out = call.out + token * call.out_stride + column
        begun, begun_stride = out, call.out_stride
        if start == 0:
            begun, begun_stride = call.bias + column if call.bias != 0 else zeros, 0
        multiply_groups(
            weights, stride, tile_stride, num_here,
            call.rounded + at * group_size, call.scales + 4 * at, call.sums + 4 * at,
            begun, begun_stride, out, call.out_stride,
            step, bits, has_offset, is_packed, num_tiles,
        )  # fmt: skip
