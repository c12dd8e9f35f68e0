"""Squared attention per key, summed over heads and queries, with the log-sum-exp of each query's scores.

These sums rank what lies outside of the pot: a few heads that search for something decide, and not the many that look
everywhere. Shapes are as in `kernels.attention`.
"""

from collections.abc import Iterator

import torch
from ondevice.kernels.attention import _fold
from torch import Tensor

_MAX_SCORES = 1 << 22  # held at once: 16 MB; with fewer the products are too small to be quick


def attention_sharpness(
    query: Tensor,
    keys: Tensor,
    *,
    scale: float,
    softcap: float | None = None,
    others: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Sharpness of the attention to each key, that of every head and query, squared and summed; and log-sum-exps.

    A head that attends to one token adds 1 there, one that attends to a hundred alike adds a hundredth in all.

    Args:
        query: (batch, heads, n, dim).
        keys: (batch, kv_heads, num_slots, dim); every query sees all of them.
        scale, softcap: as for `attention`.
        others: (batch, kv_heads, groups * n) float32, the log-sum-exp over further keys, which are not among
            `keys`; None: there are none.

    Returns:
        Sharpness (batch, num_slots) float32, which sums to at most num_heads * n over the slots; and the log-sum-exp
        of each query over the keys, (batch, kv_heads, groups * n) float32.
    """
    sharpness, sums = torch.zeros(keys.shape[0], keys.shape[2], device=keys.device), []
    first = 0
    for scores, total, most in _exponentials(query, keys, scale, softcap):
        sums.append(total.log() + most)
        if others is not None:
            total = total + (others[:, :, first : first + total.shape[2]] - most).exp()
        sharpness += torch.einsum("bhqs,bhq->bs", scores.square_(), total.square().reciprocal())
        first += total.shape[2]
    return sharpness, torch.cat(sums, dim=2)


def attention_sums(query: Tensor, keys: Tensor, *, scale: float, softcap: float | None = None) -> Tensor:
    """The log-sum-exp of `attention_sharpness` alone, (batch, kv_heads, groups * n) float32."""
    parts = _exponentials(query, keys, scale, softcap)
    return torch.cat([total.log() + most for _, total, most in parts], dim=2)


def _exponentials(
    query: Tensor, keys: Tensor, scale: float, softcap: float | None
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Some queries after the other: exp(scores - most), their sum over the keys, and the largest score of each query.

    Shapes (batch, kv_heads, rows, num_slots) and twice (batch, kv_heads, rows), of float32 or wider.
    """
    rows = max(_MAX_SCORES // (keys.shape[0] * keys.shape[1] * keys.shape[2]), 1)
    wide = torch.promote_types(query.dtype, torch.float32)
    for part in _fold(query, keys.shape[1]).split(rows, dim=2):
        scores = ((part * scale) @ keys.transpose(-1, -2)).to(wide)
        if softcap is not None:
            scores = softcap * torch.tanh(scores / softcap)
        most = scores.amax(dim=-1, keepdim=True)
        scores = scores.sub_(most).exp_()
        yield scores, scores.sum(dim=-1), most[..., 0]
