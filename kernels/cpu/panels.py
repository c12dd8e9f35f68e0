"""Keys and values in panels, for the attention of many queries on a CPU: of wide ones, or of codes, whose keys turn."""

# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

import struct
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from numba import carray, literally
from ondevice.kernels.codes import Coded
from ondevice.kernels.cpu import codes, counters, query_tiles, vectors
from ondevice.kernels.cpu.building import Kernel, built, jit, last_change
from ondevice.kernels.cpu.codes import NO_CODES, arguments_of, kind_of, readable, widen_keys, widen_values
from ondevice.kernels.cpu.counters import draw
from ondevice.kernels.cpu.query_tiles import HAS_PAIRS, PANEL_SLOTS, pack_key, pack_query, pack_values
from ondevice.kernels.cpu.threads import run_in_threads
from ondevice.kernels.cpu.vectors import BFLOAT16, FLOAT32, INT8, LINE_BYTES
from torch import Tensor

_INTEGERS = [
    *("keys", "values", "key_panels", "value_panels", "counters", "scratch"),
    *("num_heads", "num_kv_heads", "num_slots", "num_panels"),
    *("key_batch", "key_head", "key_stride", "value_batch", "value_head", "value_stride"),
    *codes.ARGUMENTS,
]
_CALL = np.dtype([(name, np.int64) for name in _INTEGERS])
_PACKED = struct.Struct(f"={len(_INTEGERS)}q")


class Panels(NamedTuple):
    """Keys and values of `num_slots` slots: (2, batch * kv_heads, num_panels, bytes) uint8, of numbers of `kind`."""

    laid_out: Tensor
    num_slots: int
    kind: int


def panels_of(keys: Tensor, values: Tensor, *, in_bfloat16: bool) -> Panels:
    """Panels of keys after RoPE and values, float32 (batch, kv_heads, num_slots, dim).

    Args:
        in_bfloat16: they are rounded, where the processor multiplies that at once.
    """
    return _lay_out(keys, values, keys.shape[3], _kind(in_bfloat16), FLOAT32, NO_CODES)


def panels_of_codes(coded: Coded, positions: Tensor, cos: Tensor, sin: Tensor, *, in_bfloat16: bool) -> Panels:
    """The same of quantised ones, whose keys turn by the rows of `cos` and `sin` that `positions` names."""
    coded, cos, sin = readable(coded, cos, sin)
    arguments = arguments_of(coded, positions, cos.data_ptr(), sin.data_ptr())
    return _lay_out(coded.keys, coded.values, cos.shape[1], _kind(in_bfloat16), kind_of(coded), arguments)


def _kind(in_bfloat16: bool) -> int:
    return BFLOAT16 if in_bfloat16 and HAS_PAIRS else FLOAT32


def prepare(head_dim: int, *, in_bfloat16: bool) -> int:
    """Compile what lays out panels of float32 and of 8 bits, for later processes, too; gives the panels' kind."""
    kind = _kind(in_bfloat16)
    for stored in (FLOAT32, INT8):
        _compiled(head_dim, kind, stored)
    return kind


def _lay_out(keys: Tensor, values: Tensor, head_dim: int, kind: int, stored: int, arguments: tuple[int, ...]) -> Panels:
    assert keys.stride(3) == values.stride(3) == 1
    batch, num_kv_heads, num_slots = keys.shape[:3]
    num_panels, num_threads = -(-num_slots // PANEL_SLOTS), torch.get_num_threads()
    panel_bytes = bytes_of_panel.py_func(head_dim, kind)
    panels = torch.empty(2, batch * num_kv_heads, num_panels, panel_bytes, dtype=torch.uint8)
    drawn = torch.zeros(2 * LINE_BYTES, dtype=torch.uint8)
    scratch = torch.empty(0 if stored < INT8 else num_threads * PANEL_SLOTS * head_dim)
    call = _PACKED.pack(
        *(tensor.data_ptr() for tensor in (keys, values, *panels, drawn, scratch)),
        batch * num_kv_heads,
        num_kv_heads,
        num_slots,
        num_panels,
        *(stride * keys.element_size() for stride in keys.stride()[:3]),
        *(stride * values.element_size() for stride in values.stride()[:3]),
        *arguments,
    )
    run_in_threads(_compiled(head_dim, kind, stored).run, call, num_threads)
    return Panels(panels, num_slots, kind)


@cache
def _compiled(head_dim: int, kind: int, stored: int) -> Kernel:
    parts_changed = last_change((codes, counters, query_tiles, vectors))

    def work(call):  # type: ignore[no-untyped-def]
        _ = parts_changed  # part of the cache's key
        _work(carray(call, 1, _CALL)[0], head_dim, kind, stored)

    return built(work)


@jit
def bytes_of_panel(head_dim: int, kind: int) -> int:
    """The keys, or the values, of PANEL_SLOTS slots."""
    return PANEL_SLOTS * head_dim * (2 if kind == BFLOAT16 else 4)


@jit
def _work(call: Any, head_dim: int, kind: int, stored: int) -> None:
    """One thread: panels of keys and values that no other has taken. Behind the last slot it is repeated."""
    literally(head_dim), literally(kind), literally(stored)
    panel_bytes = bytes_of_panel(head_dim, kind)
    wide = call.scratch + draw(call.counters + LINE_BYTES) * 4 * PANEL_SLOTS * head_dim
    while True:
        task = draw(call.counters)
        if task >= call.num_heads * call.num_panels:
            return
        head, first = task // call.num_panels, task % call.num_panels * PANEL_SLOTS
        row, kv_head = head // call.num_kv_heads, head % call.num_kv_heads
        num_here = min(PANEL_SLOTS, call.num_slots - first)
        keys = call.keys + row * call.key_batch + kv_head * call.key_head + first * call.key_stride
        values = call.values + row * call.value_batch + kv_head * call.value_head + first * call.value_stride
        key_panel, value_panel = call.key_panels + task * panel_bytes, call.value_panels + task * panel_bytes
        if stored < INT8:
            _pack_keys(keys, call.key_stride, num_here, key_panel, head_dim, kind)
            _pack_values(values, call.value_stride, num_here, value_panel, head_dim, kind)
            continue
        scales = call.key_scales + row * call.key_scales_batch + kv_head * call.key_scales_head
        widen_keys(
            keys,
            call.key_stride,
            scales + first * call.key_scale_bytes,
            call.offsets + 4 * head_dim * kv_head,
            call.gains + 4 * head_dim * kv_head,
            call.places + row * call.places_batch + kv_head * call.places_head + 4 * first,
            0,
            call.cosines,
            call.sines,
            num_here,
            wide,
            head_dim,
            stored,
        )
        _pack_keys(wide, 4 * head_dim, num_here, key_panel, head_dim, kind)
        scales = call.value_scales + row * call.value_scales_batch + kv_head * call.value_scales_head
        scales += first * call.value_scale_bytes
        widen_values(values, call.value_stride, scales, num_here, wide, head_dim, stored)
        _pack_values(wide, 4 * head_dim, num_here, value_panel, head_dim, kind)


@jit
def _pack_keys(keys: int, stride: int, num_here: int, to: int, head_dim: int, kind: int) -> None:
    literally(head_dim), literally(kind)
    for i in range(PANEL_SLOTS):
        pack_key(keys + min(i, num_here - 1) * stride, to + 4 * i, head_dim, kind)


@jit
def _pack_values(values: int, stride: int, num_here: int, to: int, head_dim: int, kind: int) -> None:
    literally(head_dim), literally(kind)
    if kind == BFLOAT16:
        for i in range(0, PANEL_SLOTS, 2):
            slot, following = min(i, num_here - 1), min(i + 1, num_here - 1)
            pack_values(values + slot * stride, values + following * stride, to + 2 * i * head_dim, head_dim)
    else:
        for i in range(PANEL_SLOTS):
            pack_query(values + min(i, num_here - 1) * stride, to + 4 * i * head_dim, 1.0, head_dim, kind)
