"""Attention of one token on a GPU: how its blocks are split over programs, and the launch of the kernels.

A call writes into memory of torch's allocator only and never waits for the device, so that a CUDA graph can hold it.
"""

from __future__ import annotations

from functools import cache

import torch
from ondevice.kernels.backend import is_interpreted
from ondevice.kernels.triton.decode_kernels import merge_kernel, read_kernel
from ondevice.kernels.triton.tiles import power_of_two, tile_sizes
from torch import Tensor

_MAX_ROWS = 128  # query heads of a KV head; their output is held in registers
_MAX_SPLITS = 64


def attend(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    num_used: Tensor,
    *,
    scale: float,
    block_size: int,
    num_splits: int | None = None,
) -> Tensor:
    """Launch the kernels; shapes as for `used_attention`.

    Args:
        block_size: slots of a block, which one program reads.
        num_splits: programs that share the blocks of one KV head; None: two for each processor of this GPU, and one in
            the interpreter.
    """
    assert query.shape[2] == 1
    batch, num_heads, _, head_dim = query.shape
    num_kv_heads, num_slots = keys.shape[1:3]
    num_rows = num_heads // num_kv_heads
    assert num_rows <= _MAX_ROWS, f"{num_rows} query heads share a KV head; this kernel takes {_MAX_ROWS}"
    assert keys.stride() == values.stride()
    assert keys.stride(3) == 1
    assert num_used.dtype == torch.int32
    num_steps, num_programs = -(-num_slots // block_size), batch * num_kv_heads
    if num_splits is None:
        fill = 1 if is_interpreted() else round(2 * _num_processors(query.device) / num_programs)
        num_splits = max(1, min(num_steps // 2, _MAX_SPLITS, fill))
    num_splits = min(num_splits, num_steps)
    query = query.contiguous()
    sizes = tile_sizes(num_rows, head_dim, query.dtype)
    shape = {"ROWS": num_rows, "HEAD_DIM": head_dim, "PADDED_DIM": sizes["PADDED_DIM"], "SPLITS": num_splits}
    partial = statistics = out = torch.empty_like(query)
    if num_splits > 1:
        partial = query.new_empty((num_programs * num_splits, num_rows, head_dim), dtype=torch.float32)
        statistics = query.new_empty((num_programs * num_splits, num_rows, 2), dtype=torch.float32)
    read_kernel[(num_splits, num_kv_heads, batch)](
        query,
        keys,
        values,
        out,
        partial,
        statistics,
        num_used,
        scale,
        *keys.stride()[:3],
        BLOCK_SIZE=block_size,
        PADDED_ROWS=sizes["PADDED_GROUPS"],
        TILE=min(sizes["TILE"], max(16, power_of_two(block_size))),
        IN_FLOAT32=sizes["IN_FLOAT32"],
        **shape,
        num_warps=4,
        num_stages=2,
    )
    if num_splits > 1:
        padded = power_of_two(num_splits)
        merge_kernel[(num_programs, num_rows)](partial, statistics, out, PADDED_SPLITS=padded, **shape)
    return out


@cache
def _num_processors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count
