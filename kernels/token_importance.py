"""Token importance of SpecPrefill (arXiv 2502.02789): the most that any head of some queries attends to a slot."""

import torch
from ondevice.kernels.attention import _fold, _fold_mask, _probabilities, causal_mask
from torch import Tensor


def head_maximum(
    query: Tensor, keys: Tensor, *, scale: float, mask: Tensor | None = None, softcap: float | None = None
) -> Tensor:
    """Attention that every slot gets from each query in the head that gives it most (section 3.2.2).

    Args:
        query, keys, scale, mask, softcap: as for `attention`; the queries are the last slots.

    Returns:
        (batch, n, num_slots) float32.
    """
    batch, num_heads, num_queries, _ = query.shape
    num_kv_heads = keys.shape[1]
    folded = _fold(query, num_kv_heads)
    probabilities = _probabilities(folded, keys, _fold_mask(query, keys, mask), scale, softcap)
    shape = (batch, num_kv_heads, num_heads // num_kv_heads, num_queries, keys.shape[2])
    return probabilities.view(shape).amax(dim=(1, 2))


def head_maximum_ref(
    query: Tensor, keys: Tensor, *, scale: float, mask: Tensor | None = None, softcap: float | None = None
) -> Tensor:
    """Reference for `head_maximum`: float32, one query head and one query after the other."""
    groups, num_queries, num_slots = query.shape[1] // keys.shape[1], query.shape[2], keys.shape[2]
    if mask is None:
        mask = causal_mask(num_queries, num_slots, torch.float32, query.device)
    mask = mask.expand(keys.shape[0], keys.shape[1], num_queries, num_slots).float()
    result = torch.zeros(keys.shape[0], num_queries, num_slots, device=keys.device)
    for head in range(query.shape[1]):
        for i in range(num_queries):
            scores = (keys[:, head // groups].float() @ query[:, head, i, :, None].float()).squeeze(-1) * scale
            if softcap is not None:
                scores = softcap * torch.tanh(scores / softcap)
            weights = (scores + mask[:, head // groups, i]).softmax(dim=-1)
            result[:, i] = torch.maximum(result[:, i], weights)
    return result
