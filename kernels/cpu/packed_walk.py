"""The walk over tiles of packed weights and tokens of `packed_product`, compiled by Numba."""

# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

import struct
from functools import cache
from typing import Any

import numpy as np
from numba import carray, literally
from ondevice.kernels.cpu import byte_rounding, byte_vectors, counters, vectors
from ondevice.kernels.cpu.building import Kernel, built, jit, last_change
from ondevice.kernels.cpu.byte_rounding import round_group
from ondevice.kernels.cpu.byte_vectors import multiply_groups, unpack_group
from ondevice.kernels.cpu.counters import draw
from ondevice.kernels.packed import BY_NUMBER, TILE_ROWS

ROUND, FEW, MANY = 0, 1, 2  # stages: activations to bytes; products with weights as they are packed; from panels
# Two counters, and what is 0, as much as the outputs of two tiles, at the beginning of a call's memory.
_ZEROS, COUNTER_BYTES = 128, 256

_ADDRESSES = ("x", "rounded", "scales", "sums", "weights", "lower", "bias", "out", "counters", "panels")
_SIZES = (
    *("num_tokens", "num_groups", "num_tiles", "out_stride", "panel_groups", "panel_bytes"),
    *("tokens_per_block", "tiles_per_draw"),
)
_CALL = np.dtype([(name, np.int64) for name in (*_ADDRESSES, *_SIZES)])
PACKED_ADDRESSES, PACKED_SIZES = (struct.Struct(f"={len(names)}q") for names in (_ADDRESSES, _SIZES))


@cache
def compiled(stage: int, form_number: int, step: int) -> Kernel:
    """One kernel; later processes find it in Numba's cache."""
    from ondevice.kernels import packed

    parts_changed = last_change((byte_rounding, byte_vectors, counters, packed, vectors))
    form = BY_NUMBER[form_number]
    group_size, panel_bytes = form.group_size, form.panel_bytes
    unit_groups, unit_bytes, lower_bytes = form.unit_groups, form.unit_bytes, form.lower_bytes
    level, at_once = byte_vectors.LEVEL, byte_vectors.tiles_at_once()

    # The stages are branches, of which Numba compiles the one that is taken: a function in the key of its cache would
    # be another one in every process.
    def work(call):  # type: ignore[no-untyped-def]
        _ = parts_changed, level  # part of the cache's key
        if stage == ROUND:
            _round(carray(call, 1, _CALL)[0], group_size, step, form_number)
        elif stage == FEW:
            _few(carray(call, 1, _CALL)[0], group_size, unit_groups, unit_bytes, lower_bytes, step, form_number)
        else:
            _many(
                carray(call, 1, _CALL)[0], group_size, unit_groups, unit_bytes, lower_bytes, panel_bytes, step,
                at_once, form_number,
            )  # fmt: skip

    return built(work)


@jit
def _round(call: Any, group_size: int, step: int, form_number: int) -> None:
    """One thread: round the activations of steps that no other has taken.

    Those of a step lie side by side, four bytes of each token after the other, so that a product reads on and on.
    """
    literally(step), literally(form_number)
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
                    form_number,
                )


@jit
def _few(
    call: Any, group_size: int, unit_groups: int, unit_bytes: int, lower_bytes: int, step: int, form_number: int
) -> None:
    """One thread: tiles that no other has taken, straight from their packed form."""
    literally(step), literally(form_number)
    num_groups, per_draw = call.num_groups, call.tiles_per_draw
    tile_bytes = num_groups // unit_groups * unit_bytes
    while True:
        first = draw(call.counters + 64) * per_draw
        if first >= call.num_tiles:
            return
        for tile in range(first, min(first + per_draw, call.num_tiles)):
            _add_tiles(
                call,
                call.weights + tile * tile_bytes,
                call.lower + tile * num_groups * lower_bytes,
                0,
                0,
                tile,
                0,
                num_groups,
                0,
                call.num_tokens,
                step,
                group_size,
                form_number,
                1,
                1,
            )


@jit
def _many(
    call: Any,
    group_size: int,
    unit_groups: int,
    unit_bytes: int,
    lower_bytes: int,
    panel_bytes: int,
    step: int,
    at_once: int,
    form_number: int,
) -> None:
    """One thread: tiles that no other has taken, some at once, for a block of tokens, from panels.

    Where there are fewer left than go at once, the last one is unpacked again: there is room for what that gives.
    """
    literally(step), literally(at_once), literally(form_number)
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
                number = min(tile + i, call.num_tiles - 1)
                weights = call.weights + number * (num_groups // unit_groups * unit_bytes)
                lower = call.lower + number * num_groups * lower_bytes
                for group in range(num_here):
                    to = panel + i * tile_bytes + group * panel_bytes
                    unpack_group(weights, lower, start + group, to, form_number)
            _add_tiles(
                call,
                panel,
                0,
                panel_bytes,
                tile_bytes,
                tile,
                start,
                num_here,
                first,
                num_tokens,
                step,
                group_size,
                form_number,
                0,
                at_once,
            )


@jit
def _add_tiles(
    call: Any,
    weights: int,
    lower: int,
    stride: int,
    tile_stride: int,
    tile: int,
    start: int,
    num_here: int,
    first: int,
    num_tokens: int,
    step: int,
    group_size: int,
    form_number: int,
    is_packed: int,
    num_tiles: int,
) -> None:
    """Add the products of some groups of some tiles, for some tokens; `first` is the first of a step."""
    literally(step), literally(form_number), literally(is_packed), literally(num_tiles)
    column, zeros = 4 * TILE_ROWS * tile, call.counters + _ZEROS
    for token in range(first, first + num_tokens, step):
        at = token * call.num_groups + start * step  # of numbers that each group has one of for each token
        out = call.out + token * call.out_stride + column
        begun, begun_stride = out, call.out_stride
        if start == 0:
            begun, begun_stride = call.bias + column if call.bias != 0 else zeros, 0
        multiply_groups(
            weights, lower, stride, tile_stride, num_here,
            call.rounded + at * group_size, call.scales + 4 * at, call.sums + 4 * at,
            begun, begun_stride, out, call.out_stride,
            step, form_number, is_packed, num_tiles,
        )  # fmt: skip
