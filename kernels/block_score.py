"""Block scores of SlimInfer: how much each block of new tokens matters to the last queries."""

import torch
import torch.nn.functional as F
from torch import Tensor


def block_scores(query: Tensor, keys: Tensor, *, block_size: int, unit_size: int) -> Tensor:
    """Equations 1 and 2 of SlimInfer: the best token unit of each block, by its mean key and the mean query.

    A unit's score is linear in its keys, so the scores of its tokens are averaged instead of the keys themselves.

    Args:
        query: (batch, heads, window, dim), after RoPE: the local window.
        keys: (batch, kv_heads, n, dim), after RoPE; the last unit and the last block may be cut short.
        block_size: tokens in a block, a multiple of `unit_size`.
        unit_size: tokens in a unit.

    Returns:
        (batch, ceil(n / block_size)) float32.
    """
    batch, num_heads, _, head_dim = query.shape
    num_kv_heads = keys.shape[1]
    # Heads that share a key add up before the product, as they would after it.
    local = query.float().mean(dim=2).view(batch, num_kv_heads, num_heads // num_kv_heads, head_dim).sum(dim=2)
    tokens = torch.einsum("bhd,bhnd->bn", local, keys.float()) / num_heads
    return best_unit(tokens, block_size=block_size, unit_size=unit_size)


def best_unit(values: Tensor, *, block_size: int, unit_size: int) -> Tensor:
    """The highest mean of a token unit in each block: values (batch, n) float32 -> (batch, ceil(n / block_size))."""
    missing = -values.shape[-1] % unit_size
    sums = F.pad(values, (0, missing)).unflatten(-1, (-1, unit_size)).sum(dim=-1)
    sizes = torch.full_like(sums, unit_size)
    sizes[..., -1] -= missing  # the last unit is averaged over the tokens that it has
    return F.max_pool1d(sums / sizes, block_size // unit_size, ceil_mode=True)
