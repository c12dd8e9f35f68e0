"""Decode attention that stops once its output has converged: ART (arXiv 2606.00024); and a plain one for CUDA graphs.

The slots of a pot are read block by block with an online softmax. After each block a detector compares the normalised
partial output; when that has stood still for some blocks in a row, the rest is not read. Query heads that share a KV
head are read for together, and end together.
"""

import torch
from ondevice.kernels.attention import additive_mask, attention
from ondevice.kernels.backend import uses_triton
from ondevice.kernels.termination import Termination
from torch import Tensor

_BLOCK_SIZE = 64  # slots


def decode_attention(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    scale: float,
    block_size: int = _BLOCK_SIZE,
    order: Tensor | None = None,
    termination: Termination | None = None,
) -> tuple[Tensor, Tensor]:
    """Attention of one new token over all slots, or on a CPU as many blocks of them as it takes.

    On a GPU a detector took as long as what it saved: there torch's own attention reads all.

    Args:
        query: (batch, heads, 1, dim), after RoPE.
        keys: (batch, kv_heads, num_slots, dim), after RoPE; may be a view into a larger buffer.
        values: as `keys`.
        scale: factor on the scores.
        block_size: slots of a block; block b begins at slot b * block_size.
        order: (batch or 1, kv_heads or 1, num_blocks) int32, the blocks in the order in which they are read;
            None: from the last to the first. Block 0 is always read, if need be after the others.
        termination: when reading ends; None: after the last block.

    Returns:
        The output, shape and dtype of `query`, and the blocks that were read, (batch, kv_heads) int32.
    """
    if query.device.type != "cpu":
        num_blocks = -(-keys.shape[2] // block_size)
        blocks_read = torch.full(keys.shape[:2], num_blocks, dtype=torch.int32, device=query.device)
        return attention(query, keys, values, scale=scale), blocks_read
    # Imported here: Numba is not there on every machine.
    from ondevice.kernels.cpu.decode_attention import Reading, attend

    return attend(query, keys, values, Reading(scale, block_size, order, termination))


def used_attention(query: Tensor, keys: Tensor, values: Tensor, num_used: Tensor, *, scale: float) -> Tensor:
    """Attention of one new token over the first slots. The host need not know how many, so that a CUDA graph can hold
    the call.

    Args:
        query, keys, values, scale: as for `decode_attention`.
        num_used: (1,) int32 on the device, the slots there are: those after them are not read.

    Returns:
        Shape and dtype of `query`.
    """
    if uses_triton(query):
        # Imported here: Triton is not there on every machine.
        from ondevice.kernels.triton.decode_attention import attend

        return attend(query, keys, values, num_used, scale=scale, block_size=_BLOCK_SIZE)
    is_used = torch.arange(keys.shape[2], device=query.device) < num_used
    return attention(query, keys, values, scale=scale, mask=additive_mask(is_used, query.dtype)[None, None, None])
