"""Random paged storage, for tests and checks of the paged kernels."""

from __future__ import annotations

import torch
from torch import Tensor

from ondevice_bench.paged.paged_update import NO_BLOCK


def scattered_tables(num_slots: list[int], block_size: int, spare: int = 3) -> tuple[Tensor, int]:
    """Block tables (batch, max_blocks) int32 for sequences of these lengths, and how many blocks there are in all.

    The physical blocks are shuffled over all sequences, and every table ends in an entry without a block.
    """
    num_blocks = [-(-length // block_size) for length in num_slots]
    total = sum(num_blocks) + spare
    free = torch.randperm(total, generator=torch.Generator().manual_seed(total)).tolist()
    tables = torch.full((len(num_slots), max(num_blocks) + 1), NO_BLOCK, dtype=torch.int32)
    for row, count in enumerate(num_blocks):
        tables[row, :count] = torch.tensor([free.pop() for _ in range(count)], dtype=torch.int32)
    return tables, total


def paged_inputs(
    lengths: list[int], heads: tuple[int, int], head_dim: int, block_size: int, dtype: torch.dtype
) -> tuple[Tensor, ...]:
    """Query, key blocks, value blocks, block tables and lengths, as `paged_attention` takes them.

    Args:
        heads: num_heads, num_kv_heads.
    """
    tables, num_blocks = scattered_tables(lengths, block_size)
    generator = torch.Generator().manual_seed(sum(lengths) + head_dim)
    query = torch.randn(len(lengths), heads[0], head_dim, generator=generator)
    storage = torch.randn(2, num_blocks, block_size, heads[1], head_dim, generator=generator)
    keys, values = storage.to(dtype)
    return query.to(dtype), keys, values, tables, torch.tensor(lengths, dtype=torch.int32)
