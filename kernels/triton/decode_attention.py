"""Attention of one token on a GPU: how its slots are split over programs, and the launch of the kernels.

A call writes into memory of torch's allocator only and never waits for the device, so that a CUDA graph can hold it.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import torch
from ondevice.kernels.backend import is_interpreted
from ondevice.kernels.triton.decode_kernels import merge_kernel, read_kernel
from ondevice.kernels.triton.tiles import power_of_two, tile_sizes
from torch import Tensor

_MAX_ROWS = 128  # query heads of a KV head; their output is held in registers
_MAX_SPLITS = 64


class Splits(NamedTuple):
    """Outputs of the programs that share the slots of one KV head.

    Attributes:
        num: programs for each KV head.
        out: as the query.
        partial, statistics: each program's sums, and what they were computed with, where there are several.
    """

    num: int
    out: Tensor
    partial: Tensor
    statistics: Tensor

    def merged(self, num_kv_heads: int) -> Tensor:
        """The output, once all of them have written."""
        if self.num > 1:
            batch, num_heads, _, head_dim = self.out.shape
            num_rows = num_heads // num_kv_heads
            merge_kernel[(batch * num_kv_heads, num_rows)](
                self.partial,
                self.statistics,
                self.out,
                SPLITS=self.num,
                PADDED_SPLITS=power_of_two(self.num),
                ROWS=num_rows,
                HEAD_DIM=head_dim,
                PADDED_DIM=max(16, power_of_two(head_dim)),
            )
        return self.out


def split(query: Tensor, num_kv_heads: int, num_steps: int, num: int | None = None) -> Splits:
    """Memory for the programs that share `num_steps` blocks of slots.

    Args:
        num: programs for each KV head; None: two for each processor of this GPU, and one in the interpreter.
    """
    batch, num_heads, _, head_dim = query.shape
    num_rows, num_places = num_heads // num_kv_heads, batch * num_kv_heads
    assert num_rows <= _MAX_ROWS, f"{num_rows} query heads share a KV head; this kernel takes {_MAX_ROWS}"
    if num is None:
        fill = 1 if is_interpreted() else round(2 * _num_processors(query.device) / num_places)
        num = max(1, min(num_steps // 2, _MAX_SPLITS, fill))
        num = 1 << (num.bit_length() - 1)  # compiled for a few numbers alone, however many slots there are
    num = min(num, num_steps)
    partial = statistics = out = torch.empty_like(query)
    if num > 1:
        partial = query.new_empty((num_places * num, num_rows, head_dim), dtype=torch.float32)
        statistics = query.new_empty((num_places * num, num_rows, 2), dtype=torch.float32)
    return Splits(num, out, partial, statistics)


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
        num_splits: as for `split`.
    """
    assert query.shape[2] == 1
    batch, num_heads, _, head_dim = query.shape
    num_kv_heads, num_slots = keys.shape[1:3]
    assert keys.stride() == values.stride()
    assert keys.stride(3) == 1
    assert num_used.dtype == torch.int32
    query = query.contiguous()
    splits = split(query, num_kv_heads, -(-num_slots // block_size), num_splits)
    sizes = tile_sizes(num_heads // num_kv_heads, head_dim, query.dtype)
    read_kernel[(splits.num, num_kv_heads, batch)](
        query,
        keys,
        values,
        splits.out,
        splits.partial,
        splits.statistics,
        num_used,
        scale,
        *keys.stride()[:3],
        SPLITS=splits.num,
        BLOCK_SIZE=block_size,
        **sizes | {"TILE": min(sizes["TILE"], max(16, power_of_two(block_size)))},
        num_warps=4,
        num_stages=2,
    )
    return splits.merged(num_kv_heads)


@cache
def _num_processors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count
