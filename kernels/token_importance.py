"""Token importance of SpecPrefill (arXiv 2502.02789): the most that any head of some queries attends to a slot."""

from ondevice.kernels.attention import _fold, _fold_mask, _probabilities
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
