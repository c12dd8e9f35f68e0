"""Attention of a few new queries over the slots of a pot, and the attention mass a slot receives.

Grouped-query heads are folded into the query length, so that keys and values are never repeated.
"""

import torch
import torch.nn.functional as F
from torch import Tensor


def fold_groups(query: Tensor, num_kv_heads: int) -> Tensor:
    """(batch, num_heads, num_queries, head_dim) -> (batch, num_kv_heads, groups * num_queries, head_dim)."""
    batch, num_heads, num_queries, head_dim = query.shape
    return query.reshape(batch, num_kv_heads, num_heads // num_kv_heads * num_queries, head_dim)


def attention(
    query: Tensor, keys: Tensor, values: Tensor, *, mask: Tensor | None, scale: float, softcap: float | None = None
) -> Tensor:
    """Scaled dot-product attention, grouped-query aware.

    Args:
        query: (batch, num_heads, num_queries, head_dim), after RoPE.
        keys: (batch, num_kv_heads, num_slots, head_dim), after RoPE.
        values: as `keys`.
        mask: additive, broadcastable to (batch, num_kv_heads, groups * num_queries, num_slots); None: all visible.
        scale: factor on the scores.
        softcap: scores become softcap * tanh(scores / softcap) (Gemma-2).

    Returns:
        (batch, num_heads, num_queries, head_dim), dtype of `query`.
    """
    folded = fold_groups(query, keys.shape[1])
    if softcap is None:
        out = F.scaled_dot_product_attention(folded, keys, values, attn_mask=mask, scale=scale)
    else:
        out = _probabilities(folded, keys, mask, scale, softcap).to(values.dtype) @ values
    return out.reshape(query.shape)


def attention_ref(
    query: Tensor, keys: Tensor, values: Tensor, *, mask: Tensor | None, scale: float, softcap: float | None = None
) -> Tensor:
    """Reference for `attention`: float32, keys and values repeated for every query head."""
    groups = query.shape[1] // keys.shape[1]
    keys, values = keys.float().repeat_interleave(groups, 1), values.float().repeat_interleave(groups, 1)
    if mask is not None:
        num_kv_heads = keys.shape[1] // groups
        full = mask.float().expand(query.shape[0], num_kv_heads, groups * query.shape[2], keys.shape[2])
        mask = full.reshape(query.shape[0], query.shape[1], query.shape[2], keys.shape[2])
    return (_probabilities(query.float(), keys, mask, scale, softcap) @ values).to(query.dtype)


def attention_mass(
    query: Tensor,
    keys: Tensor,
    *,
    mask: Tensor | None,
    scale: float,
    softcap: float | None = None,
) -> Tensor:
    """Attention that every slot receives from the given queries: eq. 2 of InfiniPot (arXiv 2410.01518).

    The probabilities are summed over the queries and over the query heads that share a KV head.

    Args:
        query: (batch, num_heads, num_queries, head_dim), after RoPE.
        keys: (batch, num_kv_heads, num_slots, head_dim), after RoPE.
        mask: additive, as for `attention`; None: all visible.

    Returns:
        (batch, num_kv_heads, num_slots), float32; sums to groups * num_queries over the slots.
    """
    folded = fold_groups(query, keys.shape[1])
    return _probabilities(folded, keys, mask, scale, softcap).sum(dim=-2)


def attention_mass_ref(
    query: Tensor, keys: Tensor, *, mask: Tensor | None, scale: float, softcap: float | None = None
) -> Tensor:
    """Reference for `attention_mass`: one query head after the other."""
    groups = query.shape[1] // keys.shape[1]
    mass = torch.zeros(keys.shape[:3], dtype=torch.float32, device=keys.device)
    for head in range(query.shape[1]):
        kv_head, rows = head // groups, slice((head % groups) * query.shape[2], (head % groups + 1) * query.shape[2])
        head_mask = None
        if mask is not None:
            shape = (keys.shape[0], keys.shape[1], groups * query.shape[2], keys.shape[2])
            head_mask = mask.expand(shape)[:, kv_head, rows]
        probabilities = _probabilities(query[:, head], keys[:, kv_head], head_mask, scale, softcap)
        mass[:, kv_head] += probabilities.sum(dim=-2)
    return mass


def _probabilities(query: Tensor, keys: Tensor, mask: Tensor | None, scale: float, softcap: float | None) -> Tensor:
    """Softmax of the scores in float32; shapes as in `attention`, with equal numbers of heads."""
    scores = (query @ keys.transpose(-1, -2)).float() * scale
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    if mask is not None:
        scores = scores + mask.float()
    return scores.softmax(dim=-1)
