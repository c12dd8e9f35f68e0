"""Attention of one new query per sequence over paged key and value storage (decode).

Block storage and block tables are those of `paged_update`.
"""

import torch
from ondevice.kernels.attention import additive_mask, attention, attention_mass
from ondevice.kernels.backend import uses_triton
from torch import Tensor

from ondevice_bench.paged.paged_update import gather_blocks


def paged_attention(
    query: Tensor, key_blocks: Tensor, value_blocks: Tensor, block_tables: Tensor, lengths: Tensor, *, scale: float
) -> Tensor:
    """Scaled dot-product attention of the newest token, grouped-query aware.

    The order of the slots does not matter to it: a slot overwritten in place counts like any other.

    Args:
        query: (batch, heads, dim), after RoPE.
        key_blocks: (num_blocks, block_size, kv_heads, dim), after RoPE, contiguous.
        value_blocks: as `key_blocks`.
        block_tables: (batch, max_blocks) int32, contiguous.
        lengths: (batch,) int32, slots that each query sees; it gets zeros where there are none.
        scale: factor on the scores.

    Returns:
        (batch, heads, dim), dtype of `query`. The Triton kernel accumulates in float32 whatever the dtype.
    """
    if uses_triton(query):
        # Imported here: Triton is no requirement, and this path alone needs it.
        from ondevice_bench.paged.triton_paged_attention import walk_blocks

        return walk_blocks(query, key_blocks, value_blocks, block_tables, lengths, scale)
    return _gathered(query, key_blocks, value_blocks, block_tables, lengths, scale)


def paged_attention_ref(
    query: Tensor, key_blocks: Tensor, value_blocks: Tensor, block_tables: Tensor, lengths: Tensor, *, scale: float
) -> Tensor:
    """Reference for `paged_attention`: float32, one sequence and one query head at a time, slot by slot."""
    block_size, groups = key_blocks.shape[1], query.shape[1] // key_blocks.shape[2]
    out = torch.zeros(query.shape, dtype=torch.float32, device=query.device)
    for batch, (table, length) in enumerate(zip(block_tables.tolist(), lengths.tolist(), strict=True)):
        places = [(table[slot // block_size], slot % block_size) for slot in range(length)]
        for head in range(query.shape[1] if places else 0):
            keys = torch.stack([key_blocks[block, offset, head // groups] for block, offset in places]).float()
            values = torch.stack([value_blocks[block, offset, head // groups] for block, offset in places]).float()
            out[batch, head] = (keys @ query[batch, head].float() * scale).softmax(dim=0) @ values
    return out.to(query.dtype)


def paged_attention_mass(
    query: Tensor, key_blocks: Tensor, block_tables: Tensor, lengths: Tensor, *, scale: float
) -> Tensor:
    """Attention that every slot receives from the newest token, summed over the query heads that share a KV head.

    Args:
        query, key_blocks, block_tables, lengths, scale: as for `paged_attention`.

    Returns:
        (batch, kv_heads, n) float32 for the first n slots, with n at least the largest length; 0 where unused.
    """
    tables = _tables_in_use(block_tables, lengths, key_blocks.shape[1])
    used = used_slots(lengths, tables.shape[1] * key_blocks.shape[1])[:, None]
    mask = additive_mask(used[:, None], torch.float32)
    return attention_mass(query[:, :, None], gather_blocks(key_blocks, tables), scale=scale, mask=mask).mul_(used)


def used_slots(lengths: Tensor, num_slots: int) -> Tensor:
    """(batch, num_slots) bool: the first `lengths` (batch,) slots of each sequence."""
    return torch.arange(num_slots, device=lengths.device) < lengths[:, None]


def _gathered(
    query: Tensor, key_blocks: Tensor, value_blocks: Tensor, block_tables: Tensor, lengths: Tensor, scale: float
) -> Tensor:
    """The torch path: the blocks in use are copied into logical order, the rest is masked."""
    tables = _tables_in_use(block_tables, lengths, key_blocks.shape[1])
    used = used_slots(lengths, tables.shape[1] * key_blocks.shape[1])
    out = attention(
        query[:, :, None],
        gather_blocks(key_blocks, tables),
        gather_blocks(value_blocks, tables),
        mask=additive_mask(used[:, None, None], query.dtype),
        scale=scale,
    ).squeeze(2)
    return out.masked_fill_((lengths == 0)[:, None, None], 0)


def _tables_in_use(block_tables: Tensor, lengths: Tensor, block_size: int) -> Tensor:
    """The entries up to the longest sequence: those after it need not be copied."""
    return block_tables[:, : max(1, -(-int(lengths.max()) // block_size))]
