"""Causal attention of many queries over the slots of a pot on a CPU, compiled by Numba.

Keys and values are laid out in panels once a call, codes made wide meanwhile; then each thread takes stretches of
queries of one head, and goes with them from block to block of slots, which stay in the second cache. What no query of a
tile sees is not computed. A row of queries meets the same blocks in the same order whoever else is there: its output
depends neither on the number of threads nor on how a text is cut into passes.
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
from ondevice.kernels.cpu import counters, panels, query_tiles, vectors
from ondevice.kernels.cpu.building import Kernel, built, jit, last_change
from ondevice.kernels.cpu.counters import draw
from ondevice.kernels.cpu.panels import Panels, bytes_of_panel, panels_of
from ondevice.kernels.cpu.query_tiles import (
    PANEL_ROW,
    PANEL_SLOTS,
    ROWS,
    add_values,
    begin_row,
    finish_row,
    pack_query,
    score_panel,
    soften_row,
)
from ondevice.kernels.cpu.threads import run_in_threads
from ondevice.kernels.cpu.vectors import BFLOAT16, HAS_AVX2, LANES, LINE_BYTES, in_lines
from torch import Tensor

MIN_QUERIES = 32  # with fewer, laying out keys and values that are wide costs more than it saves
_MAX_HEAD_DIM = 256
_STRETCH = 16 * ROWS  # queries that go from block to block together
_BLOCK = 256  # slots

_INTEGERS = [
    *("query", "out", "counters", "key_panels", "value_panels", "scratch", "thread_bytes"),
    *("num_heads", "num_queries", "groups", "num_slots", "num_panels", "query_head"),
]
_CALL = np.dtype([(name, np.int64) for name in _INTEGERS] + [("scale", np.float64)])
_PACKED = struct.Struct(f"={len(_INTEGERS)}qd")


def suits(query: Tensor, keys: Tensor) -> bool:
    """True if the kernel is faster than torch's: on x86, for float32, with enough queries."""
    return keys.dtype == torch.float32 and query.shape[2] >= MIN_QUERIES and suits_codes(query)


def suits_codes(query: Tensor) -> bool:
    """True if the kernel reads quantised keys and values for such queries, however few: on x86, for float32."""
    return query.dtype == torch.float32 and _takes(query.shape[3])


def _takes(head_dim: int) -> bool:
    return HAS_AVX2 and head_dim % LANES == 0 and head_dim <= _MAX_HEAD_DIM


def attend(query: Tensor, keys: Tensor, values: Tensor, *, scale: float, in_bfloat16: bool = False) -> Tensor:
    """Causal attention; arguments and result as for `kernels.attention.attention` without a mask.

    Args:
        in_bfloat16: round queries, keys, values and weights to bfloat16 where the processor multiplies that at once;
            sums stay in float32.
    """
    return attend_panels(query, panels_of(keys, values, in_bfloat16=in_bfloat16), scale=scale)


def attend_panels(query: Tensor, panels: Panels, *, scale: float) -> Tensor:
    """The same of keys and values that are laid out."""
    (laid_out, num_slots, kind), num_threads = panels, torch.get_num_threads()
    assert num_slots >= query.shape[2]
    batch, num_heads, num_queries, head_dim = query.shape
    query = query.contiguous()
    out = torch.empty_like(query)
    thread_bytes = in_lines(_scratch_bytes(head_dim))
    drawn = torch.zeros(2 * LINE_BYTES, dtype=torch.uint8)
    scratch = torch.empty(num_threads * thread_bytes, dtype=torch.uint8)
    call = _PACKED.pack(
        *(tensor.data_ptr() for tensor in (query, out, drawn, *laid_out, scratch)),
        thread_bytes,
        batch * num_heads,
        num_queries,
        batch * num_heads // laid_out.shape[1],
        num_slots,
        laid_out.shape[2],
        4 * num_queries * head_dim,
        scale / math.log(2),
    )
    run_in_threads(_compiled(head_dim, kind).run, call, num_threads)
    return out


def prepare(head_dim: int, *, in_bfloat16: bool) -> None:
    """Compile what `attend` needs, and for codes of 8 bits; later processes find it in Numba's cache."""
    if _takes(head_dim):
        _compiled(head_dim, panels.prepare(head_dim, in_bfloat16=in_bfloat16))


def _scratch_bytes(head_dim: int) -> int:
    """Of a thread: scores of a tile; queries, sums, maximum and total of each row of a stretch."""
    return 4 * ROWS * _BLOCK + _STRETCH * (8 * head_dim + 8)


@cache
def _compiled(head_dim: int, kind: int) -> Kernel:
    parts_changed = last_change((counters, panels, query_tiles, vectors))

    def work(call):  # type: ignore[no-untyped-def]
        _ = parts_changed  # part of the cache's key
        _attend(carray(call, 1, _CALL)[0], head_dim, kind)

    return built(work)


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
    panel_bytes = bytes_of_panel(head_dim, kind)
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
    of_head = head // call.groups * call.num_panels * panel_bytes
    for start in range(0, seen + num_here - 1, _BLOCK):
        block = of_head + start // PANEL_SLOTS * panel_bytes
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
