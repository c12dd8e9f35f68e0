"""Decode attention that stops once its output has converged: ART (arXiv 2606.00024).

The slots of a pot are read block by block with an online softmax. After each block a detector compares the normalised
partial output; when that has stood still for some blocks in a row, the rest is not read. Query heads that share a KV
head are read for together, and end together.
"""

import torch
from ondevice.kernels.attention import additive_mask, attention
from ondevice.kernels.backend import uses_triton
from ondevice.kernels.termination import Termination
from torch import Tensor


def decode_attention(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    scale: float,
    block_size: int = 64,
    order: Tensor | None = None,
    termination: Termination | None = None,
    positions: Tensor | None = None,
    query_positions: Tensor | None = None,
    window: int | None = None,
    num_used: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Attention of one new token, or a few, over all slots or as many blocks of them as it takes.

    Args:
        query: (batch, num_heads, n, head_dim), after RoPE.
        keys: (batch, num_kv_heads, num_slots, head_dim), after RoPE; may be a view into a larger buffer.
        values: as `keys`.
        scale: factor on the scores.
        block_size: slots of a block; block b begins at slot b * block_size.
        order: (batch or 1, num_kv_heads or 1, num_blocks) int32, the blocks in the order in which they are read;
            None: from the last to the first. Block 0 is always read, if need be after the others.
        termination: when reading ends; None: after the last block.
        positions: (batch or 1, num_kv_heads or 1, num_slots) int32, logical position of each slot; None: the queries
            are in the last n slots, and causal.
        query_positions: (n,) int32, with `positions`: a query sees the slots whose position is not above its own.
        window: with `positions`: and above its own less this.
        num_used: (1,) int32 on the device, the slots there are: those after them are not read. The host need not know,
            so that a CUDA graph can hold the call. Not with `order` or `positions`; None: all.

    Returns:
        The output, shape and dtype of `query`, and the blocks that were read, (batch, num_kv_heads) int32.
    """
    options = {
        "scale": scale,
        "block_size": block_size,
        "order": order,
        "termination": termination,
        "positions": positions,
        "query_positions": query_positions,
        "window": window,
    }
    if num_used is not None and not uses_triton(query):
        return _read_used(query, keys, values, scale, block_size, num_used)
    if query.device.type != "cpu" and not uses_triton(query):
        return _read_all(query, keys, values, scale, block_size, positions, query_positions, window)
    if uses_triton(query):
        # Imported here: neither Triton nor Numba is there on every machine.
        from ondevice.kernels.triton.decode_attention import attend

        return attend(query, keys, values, num_used=num_used, **options)
    from ondevice.kernels.cpu.decode_attention import attend as attend_on_cpu

    return attend_on_cpu(query, keys, values, **options)


def _read_all(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    scale: float,
    block_size: int,
    positions: Tensor | None,
    query_positions: Tensor | None,
    window: int | None,
) -> tuple[Tensor, Tensor]:
    """torch's own attention, which nothing ends early: for devices that neither kernel is for."""
    mask = None
    if positions is not None and query_positions is not None:
        distance = query_positions[:, None] - positions[:, :, None]
        visible = distance >= 0 if window is None else (distance >= 0) & (distance < window)
        mask = additive_mask(visible, query.dtype)
    blocks_read = torch.full((keys.shape[0], keys.shape[1]), -(-keys.shape[2] // block_size), dtype=torch.int32)
    return attention(query, keys, values, scale=scale, mask=mask), blocks_read.to(query.device)


def _read_used(
    query: Tensor, keys: Tensor, values: Tensor, scale: float, block_size: int, num_used: Tensor
) -> tuple[Tensor, Tensor]:
    """torch's own attention over all slots, with a mask for those that are not used."""
    slots, num_queries = torch.arange(keys.shape[2], device=query.device), query.shape[2]
    last = num_used - num_queries + torch.arange(num_queries, device=query.device)
    mask = additive_mask(slots[None] <= last[:, None], query.dtype)[None, None]
    blocks_read = ((num_used + block_size - 1) // block_size).expand(keys.shape[:2])
    return attention(query, keys, values, scale=scale, mask=mask), blocks_read
