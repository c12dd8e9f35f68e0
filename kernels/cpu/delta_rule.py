"""The gated delta rule on a CPU: a head's tokens one after the other, over some columns of its state at a time.

Columns do not depend on each other, and some of them fit the first-level cache beside what they meet: so reading costs
as little a token as decoding does.
"""

# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
import torch
from llvmlite import ir
from numba import carray, literally
from numba.core import cgutils
from ondevice.kernels.cpu import counters, token_parts, vectors
from ondevice.kernels.cpu.building import Kernel, built, jit, last_change
from ondevice.kernels.cpu.counters import draw, read_number, write_number
from ondevice.kernels.cpu.threads import are_helping, run_in_threads
from ondevice.kernels.cpu.token_parts import copy_row, gate_row, norm_row
from ondevice.kernels.cpu.vectors import F32, I64, LANES, LINE_BYTES, Builder, constant, in_lines, kernel_part
from ondevice.kernels.delta_weights import NUM_TAPS, TINY, DeltaRule
from torch import Tensor

_STRETCH = 64  # tokens whose queries, keys and values are made at a time
_MOST_VECTORS = 4  # of a row of the state that stay in registers

_WHOLE = (
    *("mixed", "gate", "steps", "strengths", "inputs", "state", "taps", "decay", "step", "norm", "out", "new_state"),
    *("counters", "scratch", "thread_bytes", "batch", "num_tokens", "num_key_heads", "num_value_heads", "channels"),
)
_CALL = np.dtype([(name, np.int64) for name in _WHOLE] + [("eps", np.float32)])


def suits(rule: DeltaRule) -> bool:
    """True if heads are whole vectors, and the convolution is one of so many taps."""
    return rule.key_dim % LANES == rule.value_dim % LANES == 0 and rule.taps.shape[0] == NUM_TAPS


def run(
    mixed: Tensor, gate: Tensor, steps: Tensor, strengths: Tensor, inputs: Tensor, state: Tensor, rule: DeltaRule
) -> tuple[Tensor, Tensor]:
    """As `kernels.delta_rule.delta_rule`."""
    tensors = mixed, gate, steps, strengths, inputs, state, rule.taps, rule.decay, rule.step, rule.norm
    assert all(tensor.is_contiguous() and tensor.dtype == torch.float32 for tensor in tensors)
    batch, num_tokens, channels = mixed.shape
    num_threads, out, new_state = torch.get_num_threads(), torch.empty_like(gate), torch.empty_like(state)
    thread_bytes = in_lines(_scratch_bytes(rule.key_dim, rule.value_dim))
    memory = np.zeros(2 * LINE_BYTES + num_threads * thread_bytes, np.uint8)
    at = memory.ctypes.data
    addresses = (tensor.data_ptr() for tensor in (*tensors, out, new_state))
    sizes = batch, num_tokens, rule.num_key_heads, rule.num_value_heads, channels
    record = np.zeros(1, _CALL)
    record[0] = *addresses, at, at + 2 * LINE_BYTES, thread_bytes, *sizes, rule.eps
    kernel = compiled(rule.key_dim, rule.value_dim).run
    run_in_threads(kernel, record.tobytes(), num_threads, is_short=are_helping())
    return out, new_state


def _scratch_bytes(key_dim: int, value_dim: int) -> int:
    """Of a thread: queries, keys and values of a stretch, and two numbers of each of its tokens."""
    return 4 * _STRETCH * (2 * key_dim + value_dim + 2)


@cache
def compiled(key_dim: int, value_dim: int) -> Kernel:
    """The kernel for heads of these sizes; later processes find it in Numba's cache."""
    parts_changed, num_vectors = last_change((counters, token_parts, vectors)), _vectors_at_once(value_dim)

    def work(call):  # type: ignore[no-untyped-def]
        _ = parts_changed  # part of the cache's key
        _run(carray(call, 1, _CALL)[0], key_dim, value_dim, num_vectors)

    return built(work)


@jit
def _run(call: Any, key_dim: int, value_dim: int, num_vectors: int) -> None:
    """One thread: heads that no other has taken."""
    literally(key_dim), literally(value_dim), literally(num_vectors)
    scratch = call.scratch + draw(call.counters + LINE_BYTES) * call.thread_bytes
    while True:
        task = draw(call.counters)
        if task >= call.batch * call.num_value_heads:
            return
        row, head = task // call.num_value_heads, task % call.num_value_heads
        state, new_state = (
            call.state + 4 * task * key_dim * value_dim,
            call.new_state + 4 * task * key_dim * value_dim,
        )
        for at in range(0, 4 * key_dim * value_dim, 4 * value_dim):
            copy_row(state + at, new_state + at, value_dim)
        for first in range(0, call.num_tokens, _STRETCH):
            num_here = min(_STRETCH, call.num_tokens - first)
            _stretch(call, row, head, first, num_here, new_state, scratch, key_dim, value_dim, num_vectors)


@jit
def _stretch(
    call: Any,
    row: int,
    head: int,
    first: int,
    num_here: int,
    state: int,
    scratch: int,
    key_dim: int,
    value_dim: int,
    num_vectors: int,
) -> None:
    """Some tokens of a head."""
    literally(key_dim), literally(value_dim), literally(num_vectors)
    queries, keys = scratch, scratch + 4 * _STRETCH * key_dim
    values = keys + 4 * _STRETCH * key_dim
    group = call.num_value_heads // call.num_key_heads
    own_keys = call.num_key_heads * key_dim
    query_at = head // group * key_dim
    value_at = 2 * own_keys + head * value_dim
    kept = values + 4 * _STRETCH * value_dim
    forgetting, step = read_number(call.decay + 4 * head), read_number(call.step + 4 * head)
    for i in range(num_here):
        query, key = queries + 4 * i * key_dim, keys + 4 * i * key_dim
        _convolve(call, row, first + i, query_at, query, key_dim)
        _convolve(call, row, first + i, own_keys + query_at, key, key_dim)
        _convolve(call, row, first + i, value_at, values + 4 * i * value_dim, value_dim)
        unit_row(query, np.float32(1 / math.sqrt(key_dim)), key_dim)
        unit_row(key, np.float32(1.0), key_dim)
        at = 4 * ((row * call.num_tokens + first + i) * call.num_value_heads + head)
        x = read_number(call.steps + at) + step
        softplus = x if x > 20.0 else math.log1p(math.exp(x))
        write_number(kept + 8 * i, np.float32(math.exp(-forgetting * softplus)))
        strength = 1.0 / (1.0 + math.exp(-read_number(call.strengths + at)))
        write_number(kept + 8 * i + 4, np.float32(strength))
    width = 4 * call.num_value_heads * value_dim  # bytes of a row of the output
    out = call.out + (row * call.num_tokens + first) * width + 4 * head * value_dim
    gate = call.gate + (row * call.num_tokens + first) * width + 4 * head * value_dim
    for column in range(0, 4 * value_dim, 4 * LANES * num_vectors):
        for i in range(num_here):
            step_columns(
                state + column,
                keys + 4 * i * key_dim,
                queries + 4 * i * key_dim,
                values + 4 * i * value_dim + column,
                out + i * width + column,
                read_number(kept + 8 * i),
                read_number(kept + 8 * i + 4),
                key_dim,
                value_dim,
                num_vectors,
            )
    for i in range(num_here):
        own = out + i * width
        norm_row(own, call.norm, own, value_dim, call.eps)
        gate_row(gate + i * width, own, own, value_dim)


@jit
def _convolve(call: Any, row: int, token: int, channel: int, out: int, size: int) -> None:
    """out = SiLU of the convolution of a token's channels; what is before the first token is among the inputs."""
    literally(size)
    stride = 4 * call.channels
    inputs = call.inputs + (row * NUM_TAPS + NUM_TAPS) * stride + 4 * channel
    mixed = call.mixed + row * call.num_tokens * stride + 4 * channel
    first = (mixed if token >= 3 else inputs) + (token - 3) * stride
    second = (mixed if token >= 2 else inputs) + (token - 2) * stride
    third = (mixed if token >= 1 else inputs) + (token - 1) * stride
    convolve_row(first, second, third, mixed + token * stride, call.taps + 4 * channel, stride, out, size)


@kernel_part(num_literals=1)
def convolve_row(
    b: Builder,
    first: ir.Value,
    second: ir.Value,
    third: ir.Value,
    fourth: ir.Value,
    taps: ir.Value,
    stride: ir.Value,
    out: ir.Value,
    size: int,
) -> None:
    """out = SiLU(the sum of rows times their taps), whole vectors; taps lie `stride` bytes apart."""
    for at in range(0, size, LANES):
        total = constant(0.0)
        for number, row in enumerate((first, second, third, fourth)):
            tap = b.read(b.advanced(taps, stride, number), 4 * at)
            total = b.fma(b.read(row, 4 * at), tap, total)
        b.write(b.silu(total), out, 4 * at)


@kernel_part(num_numbers=1, num_literals=1)
def unit_row(b: Builder, x: ir.Value, scale: ir.Value, size: int) -> None:
    """x = x / sqrt(sum(x^2) + TINY) * scale, whole vectors."""
    squares = constant(0.0)
    for at in range(0, size, LANES):
        vector = b.read(x, 4 * at)
        squares = b.fma(vector, vector, squares)
    total = b.fadd(b.across(squares, b.fadd), ir.Constant(F32, TINY))
    factor = b.splat(b.fdiv(scale, b.call_function("llvm.sqrt.f32", F32, [total])))
    for at in range(0, size, LANES):
        b.write(b.fmul(b.read(x, 4 * at), factor), x, 4 * at)


@kernel_part(num_numbers=2, num_literals=3)
def step_columns(
    b: Builder,
    state: ir.Value,
    key: ir.Value,
    query: ir.Value,
    value: ir.Value,
    out: ir.Value,
    keep: ir.Value,
    strength: ir.Value,
    key_dim: int,
    value_dim: int,
    num_vectors: int,
) -> None:
    """One token over so many vectors of columns: state = keep * state + key * change, out = its columns times query.

    `change` is strength * (value - keep * columns times key); `keep` and `strength` are numbers.
    """
    places = [4 * LANES * number for number in range(num_vectors)]
    keep, strength, rows = b.splat(keep), b.splat(strength), ir.Constant(I64, key_dim)
    sums = [cgutils.alloca_once_value(b, constant(0.0)) for _ in places]
    with cgutils.for_range(b, rows) as loop:
        row, own = b.advanced(state, 4 * value_dim, loop.index), b.splat(b.number_at(key, loop.index, F32))
        for place, total in zip(places, sums, strict=True):
            b.store(b.fma(own, b.read(row, place), b.load(total)), total)
    changes = list[ir.Value]()
    for place, total in zip(places, sums, strict=True):
        held = b.fmul(keep, b.load(total))
        changes.append(b.fmul(strength, b.fsub(b.read(value, place), held)))
        b.store(constant(0.0), total)
    with cgutils.for_range(b, rows) as loop:
        row = b.advanced(state, 4 * value_dim, loop.index)
        own, asked = (b.splat(b.number_at(numbers, loop.index, F32)) for numbers in (key, query))
        for place, total, change in zip(places, sums, changes, strict=True):
            new = b.fma(own, change, b.fmul(keep, b.read(row, place)))
            b.write(new, row, place)
            b.store(b.fma(asked, new, b.load(total)), total)
    for place, total in zip(places, sums, strict=True):
        b.write(b.load(total), out, place)


def _vectors_at_once(value_dim: int) -> int:
    whole = value_dim // LANES
    return max(count for count in range(1, _MOST_VECTORS + 1) if whole % count == 0)
