"""Attention of one query over keys stored before RoPE: blocks of keys are rotated while they are read.

No rotated copy of the keys is kept, which takes a third off the pot; the price is the rotation at every step.
"""

import torch
from ondevice.kernels.backend import uses_triton
from ondevice.kernels.rope import rotate, rows_of
from torch import Tensor


def rope_attention(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    positions: Tensor,
    cos: Tensor,
    sin: Tensor,
    *,
    scale: float,
    block_size: int = 256,
) -> Tensor:
    """Scaled dot-product attention of one token over all slots, grouped-query aware, with an online softmax.

    Args:
        query: (batch, num_heads, 1, head_dim), after RoPE.
        keys: (batch, num_kv_heads, num_slots, head_dim), before RoPE.
        values: as `keys`.
        positions: (batch or 1, num_kv_heads or 1, num_slots) integers, the position of each slot.
        cos, sin: (num_positions, rotary_dim), `sin` signed as for `rotate`.
        scale: factor on the scores.
        block_size: slots that torch rotates at a time; a block stays in the processor's cache.

    Returns:
        (batch, num_heads, 1, head_dim), dtype of `query`.
    """
    if uses_triton(query):
        # Imported here: Triton is no requirement, and this path alone needs it.
        from ondevice.kernels.triton.rope_attention import rotate_and_attend

        return rotate_and_attend(query, keys, values, positions, cos, sin, scale)
    batch, num_heads, _, head_dim = query.shape
    num_kv_heads, num_slots = keys.shape[1:3]
    folded = query.view(batch, num_kv_heads, num_heads // num_kv_heads, head_dim)
    wide = torch.promote_types(query.dtype, torch.float32)
    highest = torch.full((*folded.shape[:3], 1), -torch.inf, dtype=wide, device=query.device)
    total, out = torch.zeros_like(highest), torch.zeros(folded.shape, dtype=wide, device=query.device)
    for start in range(0, num_slots, block_size):
        block = slice(start, min(start + block_size, num_slots))
        at = positions[:, :, block]
        rotated = rotate(keys[:, :, block], rows_of(cos, at), rows_of(sin, at))
        scores = (folded @ rotated.transpose(-1, -2)).to(wide) * scale
        new_highest = torch.maximum(highest, scores.amax(dim=-1, keepdim=True))
        weights, shrink = torch.exp(scores - new_highest), torch.exp(highest - new_highest)
        total = total * shrink + weights.sum(dim=-1, keepdim=True)
        out = out * shrink + weights.to(values.dtype) @ values[:, :, block]
        highest = new_highest
    return (out / total).to(query.dtype).view(query.shape)
