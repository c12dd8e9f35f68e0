"""`decode_attention` on a CPU: the arguments of the compiled walk over the blocks, and the threads that it runs in."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from ondevice.kernels.codes import Coded
from ondevice.kernels.cpu import token_parts
from ondevice.kernels.cpu.calls import Call
from ondevice.kernels.cpu.codes import NO_CODES, address_and_strides, arguments_of, kind_of, readable
from ondevice.kernels.cpu.threads import are_helping, run_in_threads
from ondevice.kernels.cpu.vectors import BFLOAT16, FLOAT32, INT8, LANES, LINE_BYTES, in_lines
from ondevice.kernels.cpu.walk import ARGUMENTS, NUM_LIMITS, PACKED, compiled, vector_bytes
from ondevice.kernels.termination import Termination
from torch import Tensor

_BLOCK_SIZE, _CODED_BLOCK_SIZE = 256, 64  # slots, of one token's calls


class Reading(NamedTuple):
    """Scale, blocks, their order and their end; as for `kernels.decode_attention.decode_attention`."""

    scale: float
    block_size: int
    order: Tensor | None = None
    termination: Termination | None = None


def attend(query: Tensor, keys: Tensor, values: Tensor, reading: Reading) -> tuple[Tensor, Tensor]:
    """Run the kernel; arguments as for `decode_attention`."""
    assert keys.dtype == values.dtype == query.dtype
    if query.dtype not in (torch.float32, torch.bfloat16):
        keys, values = keys.float(), values.float()
    return _run(query, keys, values, reading, NO_CODES, BFLOAT16 if keys.dtype == torch.bfloat16 else FLOAT32)


def attend_coded(
    query: Tensor, coded: Coded, positions: Tensor, cos: Tensor, sin: Tensor, reading: Reading
) -> tuple[Tensor, Tensor]:
    """Run the kernel; arguments as for `coded_attention`, and all of a key turns."""
    assert cos.shape[-1] == query.shape[-1]
    coded, cos, sin = readable(coded, cos, sin)
    codes = arguments_of(coded, positions, cos.data_ptr(), sin.data_ptr())
    return _run(query, coded.keys, coded.values, reading, codes, kind_of(coded))


def call(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    out: Tensor,
    *,
    scale: float,
    num_threads: int,
    coded: Coded | None = None,
    positions: Tensor | None = None,
) -> Call:
    """A call that fills `out` with the attention of one query to as many slots as its argument "num_slots" says.

    Args:
        query, out: (1, heads, 1, dim) float32, contiguous.
        keys, values: (1, kv_heads, capacity, dim), float32 after RoPE, or those of `coded`.
        coded: where keys and values are quantised; what its frame is made of is contiguous. The tables that `positions`
            (1, kv_heads, capacity) look up are named by the arguments "cosines" and "sines".
    """
    codes, kind = NO_CODES, FLOAT32
    if coded is not None and positions is not None:
        codes, kind = arguments_of(coded, positions, 0, 0), kind_of(coded)
    reading = Reading(scale, _BLOCK_SIZE if kind == FLOAT32 else _CODED_BLOCK_SIZE)
    packed, memory, num_shared, blocks_read = _arguments(query, keys, values, out, reading, codes, num_threads)
    kernel = compiled(query.shape[1] // keys.shape[1], query.shape[3], kind)
    record, zeroed = np.frombuffer(bytearray(packed), ARGUMENTS), (memory.data_ptr(), num_shared)
    return Call(kernel.address, record, is_shared=True, zeroed=zeroed, kept=(memory, blocks_read))


def _run(
    query: Tensor, keys: Tensor, values: Tensor, reading: Reading, codes: tuple[int, ...], kind: int
) -> tuple[Tensor, Tensor]:
    """One call: `codes` are its arguments on quantised keys and values."""
    dtype, query = query.dtype, query.float().contiguous()
    out, num_threads = torch.empty_like(query), torch.get_num_threads()
    packed, memory, num_shared, blocks_read = _arguments(query, keys, values, out, reading, codes, num_threads)
    # Not the scratch: torch would fill so much in threads of its own, which go on spinning beside the helpers.
    memory[:num_shared].zero_()
    kernel = compiled(query.shape[1] // keys.shape[1], query.shape[3], kind)
    run_in_threads(kernel.run, packed, num_threads, is_short=are_helping())
    return out.to(dtype), blocks_read


def _arguments(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    out: Tensor,
    reading: Reading,
    codes: tuple[int, ...],
    num_threads: int,
) -> tuple[bytes, Tensor, int, Tensor]:
    """The arguments of a call, memory that it works in, how many bytes of that are to be 0 before it, and where it
    writes how many blocks were read."""
    assert query.shape[2] == 1
    batch, num_heads, _, head_dim = query.shape
    num_kv_heads, num_slots = keys.shape[1:3]
    assert keys.shape[:3] == values.shape[:3]
    assert keys.stride(3) == values.stride(3) == 1
    num_rows, (scale, block_size, order, termination) = num_heads // num_kv_heads, reading
    blocks_read = torch.empty(batch, num_kv_heads, dtype=torch.int32)
    # Shared by the threads: two counters, then those of each head and its softmax so far; then scratch of each thread.
    row_lanes, row_bytes = 4 * LANES * -(-num_rows // LANES), 4 * LANES * -(-block_size // LANES)
    head_bytes = in_lines(2 * LINE_BYTES + 3 * row_lanes)
    row_of_out = vector_bytes.py_func(head_dim)
    thread_bytes = num_rows * (row_bytes + row_of_out) + 4 * row_lanes + LINE_BYTES
    if codes is not NO_CODES:
        thread_bytes += num_rows * row_of_out + 4 * head_dim * block_size
    thread_bytes = in_lines(thread_bytes)
    num_shared = 2 * LINE_BYTES + batch * num_kv_heads * head_bytes
    memory = torch.empty(num_shared + num_threads * thread_bytes, dtype=torch.uint8)
    # One look-up: what it takes counts where there is little to read.
    limits = None if termination is None else _limits(termination, num_kv_heads)
    size = keys.element_size()
    packed = PACKED.pack(
        *(tensor.data_ptr() for tensor in (query, keys, values, out, blocks_read, memory)),
        batch * num_kv_heads,
        num_kv_heads,
        num_slots,
        block_size,
        head_bytes,
        thread_bytes,
        row_bytes,
        row_lanes,
        *(stride * size for stride in keys.stride()[:3]),
        *(stride * size for stride in values.stride()[:3]),
        *address_and_strides(order),
        0 if limits is None else limits.data_ptr(),
        *codes,
        scale,
        math.inf if termination is None else termination.patience,
    )
    return packed, memory, num_shared, blocks_read


def prepare(num_rows: int, head_dim: int) -> None:
    """Compile the kernel for float32 and for 8 bits, and what stands around it; later processes find that in Numba's
    cache."""
    for kind in (FLOAT32, INT8):
        compiled(num_rows, head_dim, kind)
    if token_parts.suits(head_dim):
        token_parts.prepare(head_dim)


@lru_cache(maxsize=1024)
def _limits(termination: Termination, num_kv_heads: int) -> Tensor:
    """Those of `merge_and_watch` for each KV head, (kv_heads, NUM_LIMITS) float64."""
    cosine = 1 - termination.phi
    limits = torch.zeros(num_kv_heads, NUM_LIMITS, dtype=torch.float64)
    limits[:, int(termination.is_relative)] = torch.tensor(termination.tau, dtype=torch.float64).square()
    limits[:, 2:] = torch.tensor([4 * cosine * abs(cosine), cosine < 0, cosine < 1], dtype=torch.float64)
    return limits
