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
    num_used: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Attention of one new token over all slots, or as many blocks of them as it takes.

    Args:
        query: (batch, num_heads, 1, head_dim), after RoPE.
        keys: (batch, num_kv_heads, num_slots, head_dim), after RoPE; may be a view into a larger buffer.
        values: as `keys`.
        scale: factor on the scores.
        block_size: slots of a block; block b begins at slot b * block_size.
        order: (batch or 1, num_kv_heads or 1, num_blocks) int32, the blocks in the order in which they are read;
            None: from the last to the first. Block 0 is always read, if need be after the others.
        termination: when reading ends; None: after the last block.
        num_used: (1,) int32 on the device, the slots there are: those after them are not read. The host need not know,
            so that a CUDA graph can hold the call. Not with `order`; None: all.

    Returns:
        The output, shape and dtype of `query`, and the blocks that were read, (batch, num_kv_heads) int32.
    """
    options = {"scale": scale, "block_size": block_size, "order": order, "termination": termination}
    if uses_triton(query):
        # Imported here: neither Triton nor Numba is there on every machine.
        from ondevice.kernels.triton.decode_attention import attend

        return attend(query, keys, values, num_used=num_used, **options)
    if num_used is not None:
        return _read_used(query, keys, values, scale, block_size, num_used)
    if query.device.type != "cpu":  # torch's own attention, which nothing ends early
        num_blocks = -(-keys.shape[2] // block_size)
        blocks_read = torch.full(keys.shape[:2], num_blocks, dtype=torch.int32, device=query.device)
        return attention(query, keys, values, scale=scale), blocks_read
    from ondevice.kernels.cpu.decode_attention import attend as attend_on_cpu

    return attend_on_cpu(query, keys, values, **options)


def _read_used(
    query: Tensor, keys: Tensor, values: Tensor, scale: float, block_size: int, num_used: Tensor
) -> tuple[Tensor, Tensor]:
    """torch's own attention over all slots, with a mask for those that are not used."""
    is_used = torch.arange(keys.shape[2], device=query.device) < num_used
    mask = additive_mask(is_used, query.dtype)[None, None, None]
    blocks_read = ((num_used + block_size - 1) // block_size).expand(keys.shape[:2])
    return attention(query, keys, values, scale=scale, mask=mask), blocks_read
