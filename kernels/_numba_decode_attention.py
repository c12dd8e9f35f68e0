"""`decode_attention` on a CPU: Numba compiles the walk over the blocks, `_numba_tiles` holds the vector code.

A block is read in two passes, scores and weighted values, for all query heads that share its KV head, and becomes a
partial result of its own; partial results are taken into the output strictly in the order of the blocks. So threads
may work on one head together, and the output, and where reading ends, are the same for any number of them. A thread
reads whole heads as long as there are any left, then helps with those that others have begun.
"""

from __future__ import annotations

import ctypes
import math
import struct
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numba import carray, cfunc, float64, literally, njit, types
from ondevice.kernels._numba_tiles import (
    BFLOAT16,
    FLOAT32,
    LANES,
    TILE_ROWS,
    draw,
    hide_at,
    hide_from,
    look_at,
    merge_rows,
    merge_totals,
    read_integer,
    read_number,
    scores_of_tile,
    set_to,
    soften,
    wait_for,
    weigh,
    write_integer,
    write_number,
)
from torch import Tensor

if TYPE_CHECKING:
    from ondevice.kernels.decode_attention import Termination

_LINE = 64  # bytes: counters of different use have a line of memory each
_OVER = 1 << 40  # merged blocks of a head that nobody needs to read any more
_NO_WINDOW = (1 << 31) - 1
# What the kernel is told: addresses and strides in bytes, and counts; then numbers.
_INTEGERS = (
    "query keys values out blocks_read memory num_heads num_kv_heads num_queries num_slots block_size "
    "head_bytes thread_bytes row_bytes row_lanes key_batch key_head key_stride value_batch value_head value_stride "
    "order order_batch order_head positions positions_batch positions_head query_positions window probes"
).split()
_NUMBERS = ["scale", "tau", "cosine", "patience"]
_CALL = np.dtype([(name, np.int64) for name in _INTEGERS] + [(name, np.float64) for name in _NUMBERS])
_PACKED = struct.Struct(f"={len(_INTEGERS)}q{len(_NUMBERS)}d")


def attend(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    scale: float,
    block_size: int,
    order: Tensor | None,
    termination: Termination | None,
    positions: Tensor | None,
    query_positions: Tensor | None,
    window: int | None,
) -> tuple[Tensor, Tensor]:
    """Run the kernel; arguments as for `decode_attention`."""
    batch, num_heads, num_queries, head_dim = query.shape
    num_kv_heads, num_slots = keys.shape[1:3]
    assert keys.dtype == values.dtype == query.dtype
    assert keys.shape == values.shape
    assert keys.stride(3) == values.stride(3) == 1
    dtype = query.dtype
    if dtype not in (torch.float32, torch.bfloat16):
        keys, values = keys.float(), values.float()
    query = query.float().contiguous()
    out, blocks_read = torch.empty_like(query), torch.empty(batch, num_kv_heads, dtype=torch.int32)
    num_rows = num_heads // num_kv_heads * num_queries
    num_threads = torch.get_num_threads()
    # Shared by the threads: two counters, then those of each head and its softmax so far; then scratch of each thread.
    row_lanes, row_bytes = 4 * LANES * -(-num_rows // LANES), 4 * LANES * -(-block_size // LANES)
    head_bytes = _in_lines(2 * _LINE + 3 * row_lanes)
    thread_bytes = _in_lines(num_rows * (row_bytes + _vector_bytes.py_func(head_dim)) + 5 * row_lanes + 8 * LANES)
    memory_bytes = 2 * _LINE + batch * num_kv_heads * head_bytes + num_threads * thread_bytes
    memory = torch.zeros(memory_bytes, dtype=torch.uint8)
    probes = None if termination is None else _probes(head_dim, termination.probe_stride)
    size = keys.element_size()
    call = _PACKED.pack(
        query.data_ptr(),
        keys.data_ptr(),
        values.data_ptr(),
        out.data_ptr(),
        blocks_read.data_ptr(),
        memory.data_ptr(),
        batch * num_kv_heads,
        num_kv_heads,
        num_queries,
        num_slots,
        block_size,
        head_bytes,
        thread_bytes,
        row_bytes,
        row_lanes,
        *(stride * size for stride in keys.stride()[:3]),
        *(stride * size for stride in values.stride()[:3]),
        *_address_and_strides(order),
        *_address_and_strides(positions if query_positions is not None else None),
        0 if query_positions is None else query_positions.data_ptr(),
        _NO_WINDOW if window is None else window,
        0 if probes is None else probes.data_ptr(),
        scale,
        *_rule(termination),
    )
    work = _compiled(num_rows, head_dim, BFLOAT16 if keys.dtype == torch.bfloat16 else FLOAT32)
    _gomp().GOMP_parallel(work, call, num_threads, 0)
    return out.to(dtype), blocks_read


def _rule(termination: Termination | None) -> tuple[float, float, float]:
    """A negative `tau` is relative."""
    if termination is None:
        return 0.0, 0.0, math.inf
    return (-termination.tau if termination.is_relative else termination.tau), 1 - termination.phi, termination.patience


def _in_lines(num_bytes: int) -> int:
    return -(-num_bytes // _LINE) * _LINE


def _address_and_strides(tensor: Tensor | None) -> tuple[int, int, int]:
    """Of (batch or 1, num_kv_heads or 1, n) int32; a row that serves all has no stride."""
    if tensor is None:
        return 0, 0, 0
    assert tensor.dtype == torch.int32
    assert tensor.stride(2) == 1 or tensor.shape[2] == 1
    batch_stride, head_stride = (4 * tensor.stride(i) if tensor.shape[i] > 1 else 0 for i in (0, 1))
    return tensor.data_ptr(), batch_stride, head_stride


@cache
def _probes(head_dim: int, stride: int) -> Tensor:
    """1 for the numbers of a head that the detector looks at; whole vectors."""
    probes = torch.zeros(_vector_bytes.py_func(head_dim) // 4)
    probes[:head_dim:stride] = 1.0
    return probes


@cache
def _gomp() -> Any:
    return ctypes.CDLL(None)


@cache
def _compiled(num_rows: int, head_dim: int, kind: int) -> ctypes.c_void_p:
    """The address of the kernel, one for each size of head and kind of storage."""

    @cfunc(types.void(types.voidptr), cache=True)
    def work(call):
        _work(carray(call, 1, _CALL)[0], num_rows, head_dim, kind)

    _KEPT.append(work)
    return ctypes.c_void_p(work.address)


_KEPT: list[Any] = []


_jit = njit(no_cpython_wrapper=True, no_cfunc_wrapper=True)  # called by the kernel alone


@_jit
def _vector_bytes(head_dim):
    """Of a row in scratch memory: whole vectors."""
    return 4 * LANES * -(-head_dim // LANES)


@_jit
def _work(call, num_rows, head_dim, kind):
    """One thread: whole heads first, then what others have begun."""
    literally(num_rows), literally(head_dim), literally(kind)
    memory, num_heads = call.memory, call.num_heads
    thread = draw(memory)
    scratch = memory + 2 * _LINE + num_heads * call.head_bytes + thread * call.thread_bytes
    num_helped = 0
    while num_helped < num_heads:
        head = draw(memory + _LINE)
        if head >= num_heads:
            num_helped += 1
            head = (thread + num_helped) % num_heads
        _read_head(call, head, scratch, num_rows, head_dim, kind)


@_jit
def _read_head(call, head, scratch, num_rows, head_dim, kind):
    """Read blocks of one KV head, alone or among others, until none is left or reading has ended."""
    literally(num_rows), literally(head_dim), literally(kind)
    row, kv_head = head // call.num_kv_heads, head % call.num_kv_heads
    num_blocks = -(-call.num_slots // call.block_size)
    order = call.order + row * call.order_batch + kv_head * call.order_head if call.order != 0 else 0
    merged = call.memory + 2 * _LINE + head * call.head_bytes
    begun, num_stable = merged + _LINE, merged + 8
    has_ended = False
    while True:
        if not has_ended:
            i = draw(begun)
            if i >= num_blocks:
                return
            block = read_integer(order + 4 * i) if order != 0 else num_blocks - 1 - i
        _read_block(call, row, kv_head, block, scratch, num_rows, head_dim, kind)
        if not has_ended:
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
        i += 1
        if stable >= call.patience:
            # What others have begun is not taken in any more: here reading ends, but for the sinks.
            set_to(begun, num_blocks)
            has_ended = True
            block = 0
            if not _is_ahead(order, i, num_blocks):
                set_to(merged, _OVER)
                return
        else:
            set_to(merged, i)


@_jit
def _is_ahead(order, i, num_blocks):
    """Whether block 0 is still to be read after i blocks."""
    if order == 0:
        return i < num_blocks
    for j in range(i, num_blocks):
        if read_integer(order + 4 * j) == 0:
            return True
    return False


@_jit
def _read_block(call, row, kv_head, block, scratch, num_rows, head_dim, kind):
    """The softmax over one block by itself: maxima, totals and weighted values of all rows, into the scratch memory."""
    literally(num_rows), literally(head_dim), literally(kind)
    num_queries, num_slots, block_size = call.num_queries, call.num_slots, call.block_size
    row_bytes, row_lanes = call.row_bytes, call.row_lanes
    key_stride, value_stride = call.key_stride, call.value_stride
    start = block * block_size
    num_here = min(block_size, num_slots - start)
    num_tiles = -(-num_here // LANES)
    query = call.query + 4 * head_dim * num_rows * (row * call.num_kv_heads + kv_head)
    keys = call.keys + row * call.key_batch + kv_head * call.key_head + start * key_stride
    values = call.values + row * call.value_batch + kv_head * call.value_head + start * value_stride
    maxima, totals = scratch, scratch + row_lanes
    scores = scratch + 4 * row_lanes
    out = scores + num_rows * row_bytes
    scale = call.scale
    for tile in range(num_tiles):
        first = tile * LANES
        for at in range(0, num_rows, TILE_ROWS):
            scores_of_tile(
                query + 4 * head_dim * at,
                keys + first * key_stride,
                key_stride,
                num_here - 1 - first,
                scores + row_bytes * at + 4 * first,
                row_bytes,
                scale,
                min(TILE_ROWS, num_rows - at),
                num_rows,
                head_dim,
                kind,
            )
    if call.positions != 0:
        _hide_positions(call, row, kv_head, start, num_here, scores, num_rows)
    elif num_queries > 1:
        for at in range(num_rows):
            limit = min(num_here, num_slots - num_queries + at % num_queries + 1 - start)
            for tile in range(num_tiles):
                hide_from(scores + row_bytes * at + 4 * LANES * tile, limit - tile * LANES)
    elif num_here % LANES != 0:
        for at in range(num_rows):
            hide_from(scores + row_bytes * at + 4 * LANES * (num_tiles - 1), num_here - (num_tiles - 1) * LANES)
    for at in range(num_rows):
        soften(scores + row_bytes * at, num_tiles, maxima + 4 * at, totals + 4 * at)
    for at in range(0, num_rows, TILE_ROWS):
        weigh(
            scores + row_bytes * at,
            row_bytes,
            values,
            value_stride,
            num_here,
            out + _vector_bytes(head_dim) * at,
            min(TILE_ROWS, num_rows - at),
            num_rows,
            head_dim,
            kind,
        )


@_jit
def _hide_positions(call, row, kv_head, start, num_here, scores, num_rows):
    """-inf for slots that a query does not see, and behind the block's last."""
    num_queries, row_bytes = call.num_queries, call.row_bytes
    positions = call.positions + row * call.positions_batch + kv_head * call.positions_head + 4 * start
    for at in range(num_rows):
        query_position = read_integer(call.query_positions + 4 * (at % num_queries))
        for first in range(0, num_here, LANES):
            tile = scores + row_bytes * at + 4 * first
            hide_at(tile, positions + 4 * first, num_here - 1 - first, query_position, call.window)
            hide_from(tile, num_here - first)


@_jit
def _merge(call, head, i, scratch, num_rows, head_dim, kind):
    """Take the block in the scratch memory into the head's output, as the i-th; whether it has left that as it was."""
    literally(num_rows), literally(head_dim), literally(kind)
    row_bytes, row_lanes, probes = call.row_bytes, call.row_lanes, call.probes
    maxima = call.memory + 2 * _LINE + head * call.head_bytes + 2 * _LINE
    totals, norms = maxima + row_lanes, maxima + 2 * row_lanes
    out = call.out + 4 * head_dim * num_rows * head
    kept, added = scratch + 2 * row_lanes, scratch + 3 * row_lanes
    block = scratch + 4 * row_lanes + num_rows * row_bytes
    measures = block + num_rows * _vector_bytes(head_dim)
    if i == 0:
        for at in range(num_rows):
            write_number(maxima + 4 * at, -np.inf)
            write_number(totals + 4 * at, 0.0)
            write_number(norms + 4 * at, 0.0)
        for at in range(num_rows * head_dim):
            write_number(out + 4 * at, 0.0)
    for at in range(0, row_lanes, 4 * LANES):
        merge_totals(maxima + at, totals + at, scratch + at, scratch + row_lanes + at, kept + at, added + at)
    is_stable = i > 0
    for at in range(0, num_rows, TILE_ROWS):
        num_here = min(TILE_ROWS, num_rows - at)
        out_rows, block_rows = out + 4 * head_dim * at, block + _vector_bytes(head_dim) * at
        if probes == 0:
            merge_rows(out_rows, block_rows, kept + 4 * at, added + 4 * at, probes, measures, num_here, num_rows, head_dim, 0)
            continue
        merge_rows(out_rows, block_rows, kept + 4 * at, added + 4 * at, probes, measures, num_here, num_rows, head_dim, 1)
        for j in range(num_here):
            norm = norms + 4 * (at + j)
            moved, now, product = (
                float64(read_number(measures + 12 * j)),
                float64(read_number(measures + 12 * j + 4)),
                float64(read_number(measures + 12 * j + 8)),
            )
            before = float64(read_number(norm))
            write_number(norm, now)
            is_stable = is_stable and _has_stood_still(moved, now, before, product, call)
    return is_stable


@_jit
def _has_stood_still(moved, now, before, product, call):
    """Equation 4 of one row, on squared norms: no roots, and no division."""
    tau, cosine = call.tau, call.cosine
    if not moved < (tau * tau * now if tau < 0 else tau * tau):  # a negative one is relative
        return False
    squares = now * before
    if not squares > 0:  # what comes from zero or goes there has turned by 1, what stays there not at all
        return cosine < (0.0 if moved > 0 else 1.0)
    if cosine >= 0:
        return product > 0 and product * product > cosine * cosine * squares
    return product >= 0 or product * product < cosine * cosine * squares
