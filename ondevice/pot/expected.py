"""The attention that queries to come are expected to pay to a slot, from the queries of late: Expected Attention
(arXiv 2510.00636, section 3).

The queries of a head before RoPE are taken for normally distributed, whatever is asked. Under that the mean of
exp(q k) has a closed form, and no query has to be there. Where the queries will stand is not known either: their mean
and covariance are turned by the mean of the rotations of the next positions.
"""

from __future__ import annotations

import torch
from torch import Tensor


def moments(queries: Tensor, turn: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and covariance of queries that are still to come.

    Args:
        queries: (batch, num_heads, n, head_dim), before RoPE.
        turn: (head_dim, head_dim) float32; what multiplies a row by the mean of the rotations.

    Returns:
        (batch, num_heads, head_dim) and (batch, num_heads, head_dim, head_dim), float32.
    """
    turned = queries.float() @ turn
    mean = turned.mean(dim=2, keepdim=True)
    around = turned - mean
    return mean[:, :, 0], around.transpose(-1, -2) @ around / queries.shape[2]


def expected_attention(
    keys: Tensor, values: Tensor, mean: Tensor, covariance: Tensor, *, scale: float, is_open: Tensor
) -> Tensor:
    """The share of the attention that each slot is expected to get, times the length of its value.

    Args:
        keys: (batch, num_kv_heads, n, head_dim), after RoPE.
        values: as `keys`.
        mean, covariance: of the queries of each head, from `moments`.
        scale: factor on the scores of attention.
        is_open: (batch, num_kv_heads, n): the slots that compete; sinks would draw most of it.

    Returns:
        (batch, num_kv_heads, n) float32, the mean over the query heads that share a KV head; 0 where a slot is not
        open.
    """
    batch, num_kv_heads, _, head_dim = keys.shape
    wide = keys.float()[:, :, None]
    mean = scale * mean.view(batch, num_kv_heads, -1, head_dim, 1)
    covariance = scale**2 / 2 * covariance.view(batch, num_kv_heads, -1, head_dim, head_dim)
    # log E[exp(q k)] of a normal distribution
    logits = (wide @ mean)[..., 0] + ((wide @ covariance) * wide).sum(dim=-1)
    share = logits.masked_fill(~is_open[:, :, None], -torch.inf).softmax(dim=-1).nan_to_num(0.0)
    return share.mean(dim=2) * values.float().norm(dim=-1)
