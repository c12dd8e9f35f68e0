"""Causal attention of many queries over the slots of a pot on a CPU, compiled by Numba.

Keys and values are laid out in panels once a call; then each thread takes stretches of queries of one head, and goes
with them from block to block of slots, which stay in the second cache meanwhile. What no query of a tile sees is not
computed. A row of queries meets the same blocks in the same order whoever else is there: its output depends neither on
the number of threads nor on how a text is cut into passes.
"""

# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

import math
import struct
from functools import cache
from typing import Any

import numpy as np
import torch
from numba import carray, literally
from ondevice.kernels.cpu import counters, query_tiles, vectors
from ondevice.kernels.cpu.building import Kernel, built, jit, last_change
from ondevice.kernels.cpu.counters import draw
from ondevice.kernels.cpu.query_tiles import (
    HAS_PAIRS,
    PANEL_ROW,
    PANEL_SLOTS,
    ROWS,
    add_values,
    begin_row,
    finish_row,
    pack_key,
    pack_query,
    pack_values,
    score_panel,
    soften_row,
)
from ondevice.kernels.cpu.threads import run_in_threads
from ondevice.kernels.cpu.vectors import BFLOAT16, FLOAT32, HAS_AVX2, LANES, LINE_BYTES, in_lines
from torch import Tensor

MIN_QUERIES = 32  # with fewer, laying out keys and values costs more than it saves
_MAX_HEAD_DIM = 256
_STRETCH = 16 * ROWS  # queries that go from block to block together
_BLOCK = 256  # slots

_INTEGERS = [
    *("query", "keys", "values", "out", "counters", "key_panels", "value_panels", "scratch", "thread_bytes"),
    *("num_heads", "num_queries", "groups", "num_kv_heads", "num_slots", "num_panels"),
    *("query_head", "key_batch", "key_head", "key_stride", "value_batch", "value_head", "value_stride"),
]
_CALL = np.dtype([(name, np.int64) for name in _INTEGERS] + [("scale", np.float64)])
_PACKED = struct.Struct(f"={len(_INTEGERS)}qd")
_PACK, _ATTEND = 0, 1


def suits(query: Tensor, keys: Tensor) -> bool:
    """True if the kernel is faster than torch's: on x86, for float32, with enough queries."""
    is_float = query.dtype == keys.dtype == torch.float32
    return is_float and query.shape[2] >= MIN_QUERIES and _takes(query.shape[3])


def _takes(head_dim: int) -> bool:
    return HAS_AVX2 and head_dim % LANES == 0 and head_dim <= _MAX_HEAD_DIM


def attend(query: Tensor, keys: Tensor, values: Tensor, *, scale: float, in_bfloat16: bool = False) -> Tensor:
    """Causal attention; arguments and result as for `kernels.attention.attention` without a mask.

    Args:
        in_bfloat16: round queries, keys, values and weights to bfloat16 where the processor multiplies that at once;
            sums stay in float32.
    """
    batch, num_heads, num_queries, head_dim = query.shape
    num_kv_heads, num_slots = keys.shape[1:3]
    assert num_slots >= num_queries
    assert keys.stride(3) == values.stride(3) == 1
    kind = BFLOAT16 if in_bfloat16 and HAS_PAIRS else FLOAT32
    query = query.contiguous()
    out = torch.empty_like(query)
    num_threads, num_panels = torch.get_num_threads(), -(-num_slots // PANEL_SLOTS)
    slot_bytes = head_dim * (2 if kind == BFLOAT16 else 4)
    panels = torch.empty(2, batch * num_kv_heads, num_panels * PANEL_SLOTS * slot_bytes, dtype=torch.uint8)
    thread_bytes = in_lines(_scratch_bytes(head_dim))
    memory = torch.zeros(2 * LINE_BYTES + num_threads * thread_bytes, dtype=torch.uint8)
    call = _PACKED.pack(
        *(tensor.data_ptr() for tensor in (query, keys, values, out, memory, *panels)),
        memory.data_ptr() + 2 * LINE_BYTES,
        thread_bytes,
        batch * num_heads,
        num_queries,
        num_heads // num_kv_heads,
        num_kv_heads,
        num_slots,
        num_panels,
        4 * num_queries * head_dim,
        *(4 * stride for stride in keys.stride()[:3]),
        *(4 * stride for stride in values.stride()[:3]),
        scale / math.log(2),
    )
    run_in_threads(_compiled(_PACK, head_dim, kind).run, call, num_threads)
    memory[: 2 * LINE_BYTES].zero_()
    run_in_threads(_compiled(_ATTEND, head_dim, kind).run, call, num_threads)
    return out


def prepare(head_dim: int, *, in_bfloat16: bool) -> None:
    """Compile what `attend` needs; later processes find it in Numba's cache."""
    if _takes(head_dim):
        for stage in (_PACK, _ATTEND):
            _compiled(stage, head_dim, BFLOAT16 if in_bfloat16 and HAS_PAIRS else FLOAT32)


def _scratch_bytes(head_dim: int) -> int:
    """Of a thread: scores of a tile; queries, sums, maximum and total of each row of a stretch."""
    return 4 * ROWS * _BLOCK + _STRETCH * (8 * head_dim + 8)


@cache
def _compiled(stage: int, head_dim: int, kind: int) -> Kernel:
    parts_changed = last_change((counters, query_tiles, vectors))

    def work(call):  # type: ignore[no-untyped-def]
        _ = parts_changed  # part of the cache's key
        if stage == _PACK:
            _pack(carray(call, 1, _CALL)[0], head_dim, kind)
        else:
            _attend(carray(call, 1, _CALL)[0], head_dim, kind)

    return built(work)


@jit
def _panel_bytes(head_dim: int, kind: int) -> int:
    return PANEL_SLOTS * head_dim * (2 if kind == BFLOAT16 else 4)


@jit
def _pack(call: Any, head_dim: int, kind: int) -> None:
    """One thread: lay out panels of keys and values that no other has taken. Behind the last slot it is repeated."""
    literally(head_dim), literally(kind)
    panel_bytes = _panel_bytes(head_dim, kind)
    num_heads = call.num_heads // call.groups
    while True:
        task = draw(call.counters)
        if task >= num_heads * call.num_panels:
            return
        head, first = task // call.num_panels, task % call.num_panels * PANEL_SLOTS
        row, kv_head = head // call.num_kv_heads, head % call.num_kv_heads
        keys = call.keys + row * call.key_batch + kv_head * call.key_head
        values = call.values + row * call.value_batch + kv_head * call.value_head
        key_panel, value_panel = call.key_panels + task * panel_bytes, call.value_panels + task * panel_bytes
        for i in range(PANEL_SLOTS):
            slot = min(first + i, call.num_slots - 1)
            pack_key(keys + slot * call.key_stride, key_panel + 4 * i, head_dim, kind)
        if kind == BFLOAT16:
            for i in range(0, PANEL_SLOTS, 2):
                slot, following = min(first + i, call.num_slots - 1), min(first + i + 1, call.num_slots - 1)
                pack_values(
                    values + slot * call.value_stride,
                    values + following * call.value_stride,
                    value_panel + 2 * i * head_dim,
                    head_dim,
                )
        else:
            for i in range(PANEL_SLOTS):
                slot = min(first + i, call.num_slots - 1)
                pack_query(values + slot * call.value_stride, value_panel + 4 * i * head_dim, 1.0, head_dim, kind)


@jit
def _attend(call: Any, head_dim: int, kind: int) -> None:
    """One thread: stretches of queries that no other has taken, those that see most first."""
    literally(head_dim), literally(kind)
    num_stretches = -(-call.num_queries // _STRETCH)
    scratch = call.scratch + draw(call.counters + LINE_BYTES) * call.thread_bytes
    while True:
        task = draw(call.counters)
        if task >= num_stretches * call.num_heads:
            return
        first = (num_stretches - 1 - task // call.num_heads) * _STRETCH
        _attend_stretch(call, task % call.num_heads, first, scratch, head_dim, kind)


@jit
def _attend_stretch(call: Any, head: int, first: int, scratch: int, head_dim: int, kind: int) -> None:
    """Some queries of a head, from block to block of what they see."""
    literally(head_dim), literally(kind)
    panel_bytes = _panel_bytes(head_dim, kind)
    query_bytes = 2 * head_dim if kind == BFLOAT16 else 4 * head_dim
    num_here = min(_STRETCH, call.num_queries - first)
    num_rows = -(-num_here // ROWS) * ROWS  # rows behind the last are computed in vain
    scores = scratch
    queries = scores + 4 * ROWS * _BLOCK
    sums = queries + _STRETCH * 4 * head_dim
    maxima = sums + _STRETCH * 4 * head_dim
    totals = maxima + 4 * _STRETCH
    query = call.query + head * call.query_head + 4 * head_dim * first
    out = call.out + head * call.query_head + 4 * head_dim * first
    for row in range(num_rows):
        pack_query(
            query + 4 * head_dim * min(row, num_here - 1), queries + query_bytes * row, call.scale, head_dim, kind
        )
        begin_row(maxima + 4 * row, totals + 4 * row, sums + 4 * head_dim * row, head_dim)
    seen = call.num_slots - call.num_queries + first + 1  # slots that the first of these queries sees
    panels = head // call.groups * call.num_panels * panel_bytes
    for start in range(0, seen + num_here - 1, _BLOCK):
        block = panels + start // PANEL_SLOTS * panel_bytes
        for at in range(0, num_rows, ROWS):
            last = min(at + ROWS, num_here) - 1
            num_seen = min(_BLOCK, seen + last - start)
            if num_seen <= 0:
                continue
            num_panels = -(-num_seen // PANEL_SLOTS)
            for panel in range(num_panels):
                score_panel(
                    queries + query_bytes * at,
                    call.key_panels + block + panel * panel_bytes,
                    scores + panel * PANEL_ROW,
                    4 * _BLOCK,
                    head_dim,
                    kind,
                )
            for i in range(ROWS):
                row = at + i
                soften_row(
                    scores + 4 * _BLOCK * i,
                    num_panels,
                    min(_BLOCK, seen + min(row, num_here - 1) - start),
                    maxima + 4 * row,
                    totals + 4 * row,
                    sums + 4 * head_dim * row,
                    head_dim,
                    kind,
                )
            add_values(
                scores,
                4 * _BLOCK,
                call.value_panels + block,
                -(-num_seen // 2) if kind == BFLOAT16 else num_seen,
                sums + 4 * head_dim * at,
                head_dim,
                kind,
            )
    for row in range(num_here):
        finish_row(totals + 4 * row, sums + 4 * head_dim * row, out + 4 * head_dim * row, head_dim)
