"""The walk over the blocks of `decode_attention` on a CPU, compiled by Numba.

A block is read in two passes, scores and weighted values, for all query heads that share its KV head, and becomes a
partial result of its own; partial results are taken into the output strictly in the order of the blocks. So threads
may work on one head together, and the output, and where reading ends, are the same for any number of them. A thread
reads whole heads as long as there are any left, then helps with those that others have begun.
"""

# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

import struct
from functools import cache
from typing import Any

import numpy as np
from numba import carray, literally
from ondevice.kernels.cpu import codes, counters, merging, tiles, vectors
from ondevice.kernels.cpu.building import Kernel, built, jit, last_change
from ondevice.kernels.cpu.codes import fetch_lines, lowest, turn_back, widen_keys, widen_values
from ondevice.kernels.cpu.counters import draw, look_at, read_integer, set_to, wait_for, write_integer, write_number
from ondevice.kernels.cpu.merging import allows_any, merge_and_watch, merge_rows, merge_totals
from ondevice.kernels.cpu.tiles import hide_from, scores_of_tile, soften, weigh
from ondevice.kernels.cpu.vectors import INT8, LANES, LINE_BYTES, TILE_ROWS

NUM_LIMITS = 5  # float64, of one head: see merge_and_watch
LIMITS_BYTES = 8 * NUM_LIMITS
_OVER = 1 << 40  # merged blocks of a head that need not be read any more
# Arguments of the kernel: addresses and strides in bytes, and counts; then numbers.
_INTEGERS = [
    *("query", "keys", "values", "out", "blocks_read", "memory"),
    *("num_heads", "num_kv_heads", "num_slots", "block_size"),
    *("head_bytes", "thread_bytes", "row_bytes", "row_lanes"),
    *("key_batch", "key_head", "key_stride", "value_batch", "value_head", "value_stride"),
    *("order", "order_batch", "order_head", "limits"),
    *codes.ARGUMENTS,  # of quantised keys and values alone
]
_NUMBERS = ["scale", "patience"]
ARGUMENTS = np.dtype([(name, np.int64) for name in _INTEGERS] + [(name, np.float64) for name in _NUMBERS])
PACKED = struct.Struct(f"={len(_INTEGERS)}q{len(_NUMBERS)}d")


@cache
def compiled(num_rows: int, head_dim: int, kind: int) -> Kernel:
    """The kernel for so many rows of queries to a KV head; later processes find it in Numba's cache."""
    parts_changed = last_change((codes, counters, merging, tiles, vectors))

    def work(call):  # type: ignore[no-untyped-def]
        _ = parts_changed  # part of the cache's key
        _work(carray(call, 1, ARGUMENTS)[0], num_rows, head_dim, kind)

    return built(work)


@jit
def vector_bytes(head_dim: int) -> int:
    """Of a row in scratch memory: whole vectors."""
    return 4 * LANES * -(-head_dim // LANES)


@jit
def _work(call: Any, num_rows: int, head_dim: int, kind: int) -> None:
    """One thread: whole heads first, then what others have begun."""
    literally(num_rows), literally(head_dim), literally(kind)
    memory, num_heads = call.memory, call.num_heads
    thread = draw(memory)
    scratch = memory + 2 * LINE_BYTES + num_heads * call.head_bytes + thread * call.thread_bytes
    num_helped = 0
    while num_helped < num_heads:
        head = draw(memory + LINE_BYTES)
        if head >= num_heads:
            num_helped += 1
            head = (thread + num_helped) % num_heads
        _read_head(call, head, scratch, num_rows, head_dim, kind)


@jit
def _read_head(call: Any, head: int, scratch: int, num_rows: int, head_dim: int, kind: int) -> None:
    """Read blocks of one KV head, alone or among others, until none is left or reading has ended."""
    literally(num_rows), literally(head_dim), literally(kind)
    row, kv_head = head // call.num_kv_heads, head % call.num_kv_heads
    num_blocks = -(-call.num_slots // call.block_size)
    order = call.order + row * call.order_batch + kv_head * call.order_head if call.order != 0 else 0
    merged = call.memory + 2 * LINE_BYTES + head * call.head_bytes
    begun, num_stable = merged + LINE_BYTES, merged + 8
    has_ended = False
    i = drawn = draw(begun)
    while True:
        if not has_ended:
            if i >= num_blocks:
                return
            block = read_integer(order + 4 * i) if order != 0 else num_blocks - 1 - i
            following = min(i + 1, num_blocks - 1)
            next_block = read_integer(order + 4 * following) if order != 0 else num_blocks - 1 - following
        _read_block(call, row, kv_head, block, next_block, scratch, num_rows, head_dim, kind)
        if not has_ended:
            drawn = draw(begun)  # before merging: after it the processor would wait for all that merging does
            wait_for(merged, i)
            if look_at(merged) != i:
                return
        is_stable = _merge(call, head, i, scratch, num_rows, head_dim, kind)
        write_integer(call.blocks_read + 4 * head, i + 1)
        if has_ended:
            set_to(merged, _OVER)
            return
        stable = read_integer(num_stable) + 1 if is_stable else 0
        write_integer(num_stable, stable)
        if stable >= call.patience:
            # What others have begun is not taken in any more: here reading ends, but for the sinks.
            set_to(begun, num_blocks)
            has_ended = True
            i, block = i + 1, 0
            if not _is_ahead(order, i, num_blocks):
                set_to(merged, _OVER)
                return
        else:
            set_to(merged, i + 1)
            i = drawn


@jit
def _is_ahead(order: int, i: int, num_blocks: int) -> bool:
    """True if block 0 is still to be read after i blocks."""
    if order == 0:
        return i < num_blocks
    while i < num_blocks and read_integer(order + 4 * i) != 0:
        i += 1
    return i < num_blocks


@jit
def _read_block(
    call: Any,
    row: int,
    kv_head: int,
    block: int,
    next_block: int,
    scratch: int,
    num_rows: int,
    head_dim: int,
    kind: int,
) -> None:
    """The softmax over one block by itself: maxima, totals and weighted values of all rows, into the scratch memory."""
    literally(num_rows), literally(head_dim), literally(kind)
    num_slots, block_size = call.num_slots, call.block_size
    row_bytes, row_lanes = call.row_bytes, call.row_lanes
    key_stride, value_stride = call.key_stride, call.value_stride
    start = block * block_size
    num_here = min(block_size, num_slots - start)
    num_tiles = -(-num_here // LANES)
    query = call.query + 4 * head_dim * num_rows * (row * call.num_kv_heads + kv_head)
    keys = call.keys + row * call.key_batch + kv_head * call.key_head + start * key_stride
    next_keys = keys + (min(next_block * block_size, num_slots - num_here) - start) * key_stride
    values = call.values + row * call.value_batch + kv_head * call.value_head + start * value_stride
    maxima, totals = scratch, scratch + row_lanes
    scores = scratch + 4 * row_lanes
    out = scores + num_rows * row_bytes
    scale = call.scale
    value_codes, turned = values, out + num_rows * vector_bytes(head_dim) + LINE_BYTES
    wide = turned + num_rows * vector_bytes(head_dim)
    if kind >= INT8:
        key_scales = call.key_scales + row * call.key_scales_batch + kv_head * call.key_scales_head
        value_scales = call.value_scales + row * call.value_scales_batch + kv_head * call.value_scales_head
        places = call.places + row * call.places_batch + kv_head * call.places_head
        ahead = min(next_block * block_size, num_slots - num_here)
        fetch_lines(key_scales + ahead * call.key_scale_bytes, num_here * call.key_scale_bytes)
        fetch_lines(value_scales + ahead * call.value_scale_bytes, num_here * call.value_scale_bytes)
        fetch_lines(places + 4 * ahead, 4 * num_here)
        base = lowest(places + 4 * start, num_here)
        turn_back(query, call.cosines, call.sines, base, num_rows, turned, head_dim)
        query = turned
        widen_keys(
            keys,
            key_stride,
            key_scales + start * call.key_scale_bytes,
            call.offsets + 4 * head_dim * kv_head,
            call.gains + 4 * head_dim * kv_head,
            places + 4 * start,
            base,
            call.cosines,
            call.sines,
            num_here,
            wide,
            head_dim,
            kind,
        )
        keys, key_stride = wide, 4 * head_dim
    for tile in range(num_tiles):
        first = tile * LANES
        for at in range(0, num_rows, TILE_ROWS):
            scores_of_tile(
                query + 4 * head_dim * at,
                keys + first * key_stride,
                key_stride,
                num_here - 1 - first,
                values + first * value_stride,
                value_stride,
                scores + row_bytes * at + 4 * first,
                row_bytes,
                scale,
                min(TILE_ROWS, num_rows - at),
                num_rows,
                head_dim,
                kind,
            )
    if num_here % LANES != 0:
        for at in range(num_rows):
            hide_from(scores + row_bytes * at + 4 * LANES * (num_tiles - 1), num_here - (num_tiles - 1) * LANES)
    for at in range(num_rows):
        soften(scores + row_bytes * at, num_tiles, maxima + 4 * at, totals + 4 * at)
    if kind >= INT8:
        scales = value_scales + start * call.value_scale_bytes
        widen_values(value_codes, value_stride, scales, num_here, wide, head_dim, kind)
        values, value_stride, key_stride = wide, 4 * head_dim, call.key_stride
    for at in range(0, num_rows, TILE_ROWS):
        weigh(
            scores + row_bytes * at,
            row_bytes,
            values,
            value_stride,
            num_here,
            next_keys,
            key_stride,
            out + vector_bytes(head_dim) * at,
            min(TILE_ROWS, num_rows - at),
            num_rows,
            head_dim,
            kind,
        )


@jit
def _merge(call: Any, head: int, i: int, scratch: int, num_rows: int, head_dim: int, kind: int) -> bool:
    """Take the block in the scratch memory into the head's output, as the i-th; whether it has left that as it was."""
    literally(num_rows), literally(head_dim), literally(kind)
    row_bytes, row_lanes = call.row_bytes, call.row_lanes
    maxima = call.memory + 2 * LINE_BYTES + head * call.head_bytes + 2 * LINE_BYTES
    totals, norms = maxima + row_lanes, maxima + 2 * row_lanes
    out = call.out + 4 * head_dim * num_rows * head
    kept, added = scratch + 2 * row_lanes, scratch + 3 * row_lanes
    block = scratch + 4 * row_lanes + num_rows * row_bytes
    num_moving = block + num_rows * vector_bytes(head_dim)
    if i == 0:
        for at in range(num_rows):
            write_number(maxima + 4 * at, -np.inf)
            write_number(totals + 4 * at, 0.0)
            write_number(norms + 4 * at, 0.0)
        for at in range(num_rows * head_dim):
            write_number(out + 4 * at, 0.0)
    for at in range(0, row_lanes, 4 * LANES):
        merge_totals(maxima + at, totals + at, scratch + at, scratch + row_lanes + at, kept + at, added + at)
    set_to(num_moving, 0)
    limits = call.limits + LIMITS_BYTES * (head % call.num_kv_heads) if call.limits != 0 else 0
    is_watched = limits != 0 and allows_any(limits) != 0  # a head that must not move at all never ends
    for at in range(0, num_rows, TILE_ROWS):
        num_here = min(TILE_ROWS, num_rows - at)
        to, new = out + 4 * head_dim * at, block + vector_bytes(head_dim) * at
        keep, add, norm = kept + 4 * at, added + 4 * at, norms + 4 * at
        if is_watched:
            merge_and_watch(to, new, keep, add, norm, limits, num_moving, num_here, num_rows, head_dim)
        else:
            merge_rows(to, new, keep, add, num_here, num_rows, head_dim)
    return is_watched and i > 0 and look_at(num_moving) == 0
