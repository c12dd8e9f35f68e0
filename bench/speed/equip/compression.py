"""SnapKV and LagKV: what a long cache is cut down to, and the two ways to cut it, by copies and in place.

Both choose slots from a definition of their own, head by head; how the chosen ones get together is the same question
for all such methods, and what is measured here.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from ondevice.kernels.attention import attention_mass
from torch import Tensor


class Choice(NamedTuple):
    """Slots to keep, (batch, kv_heads, num_kept) int64, ascending; their end are the last `num_last` slots."""

    slots: Tensor
    num_last: int


def snapkv(
    query: Tensor, keys: Tensor, capacity: int, *, scale: float, num_observed: int = 32, kernel_size: int = 7
) -> Choice:
    """SnapKV (arXiv 2404.14469): attention of the prompt's last queries to what comes before, pooled over neighbours.

    Args:
        query: (batch, heads, num_observed or more, dim), after RoPE, the prompt's last.
        keys: (batch, kv_heads, num_cached, dim), after RoPE.
        capacity: slots to keep, with the observation window.
    """
    scores = attention_mass(query[:, :, -num_observed:], keys, scale=scale)[..., :-num_observed]
    pooled = F.avg_pool1d(scores, kernel_size, stride=1, padding=kernel_size // 2)
    return _choice(pooled.topk(capacity - num_observed, dim=-1).indices, keys.shape[2], num_observed)


def lagkv(keys: Tensor, values: Tensor, capacity: int, *, num_sinks: int = 4, lag: int = 192) -> Choice:
    """LagKV (arXiv 2504.04704): of each partition stays what stands out from the next one, by keys and values alone.

    After the sinks the cache is cut into partitions of `lag` tokens. Every channel of a partition is normalised by
    its minimum and maximum in the partition that follows; a token's score is the standard deviation over its
    channels, made comparable by a softmax over the partition, keys and values added. The last whole partition and
    what follows it stay.

    Args:
        keys, values: (batch, kv_heads, num_cached, dim).
        capacity: slots to keep; fewer by what the partitions cannot share out evenly.
    """
    num_cached = keys.shape[2]
    num_partitions = (num_cached - num_sinks) // lag
    num_last = num_cached - num_sinks - (num_partitions - 1) * lag
    num_kept = (capacity - num_sinks - num_last) // (num_partitions - 1)
    scores = _lag_scores(keys, num_sinks, num_partitions, lag) + _lag_scores(values, num_sinks, num_partitions, lag)
    first = torch.arange(num_partitions - 1, device=keys.device)[:, None] * lag + num_sinks
    chosen = (scores.topk(num_kept, dim=-1).indices + first).flatten(2)
    sinks = torch.arange(num_sinks, device=keys.device).expand(*chosen.shape[:2], -1)
    return _choice(torch.cat((sinks, chosen), dim=-1), num_cached, num_last)


def cut_by_copies(keys: Tensor, values: Tensor, choice: Choice) -> tuple[Tensor, Tensor]:
    """The usual way: gather what was chosen before the last tokens, and append those, in new tensors.

    Args:
        keys, values: (batch, kv_heads, num_cached, dim).

    Returns:
        two tensors (batch, kv_heads, num_kept, dim), in the order of the choice.
    """
    slots, num_last = choice
    chosen = slots[..., : slots.shape[-1] - num_last, None].expand(-1, -1, -1, keys.shape[-1])
    kept = [
        torch.cat((cached.gather(2, chosen), cached[:, :, cached.shape[2] - num_last :]), 2)
        for cached in (keys, values)
    ]
    return kept[0], kept[1]


def cut_in_place_(keys: Tensor, values: Tensor, choice: Choice) -> tuple[Tensor, Tensor]:
    """EQUIP's way: what is kept stays where it is, unless it lies after the cut; that overwrites what is evicted.

    Args:
        keys, values: as for `cut_by_copies`, contiguous, changed in place.

    Returns:
        two views (batch, kv_heads, num_kept, dim), in another order.
    """
    num_kept, head_dim = choice.slots.shape[-1], keys.shape[-1]
    is_kept = torch.zeros(keys.shape[:3], dtype=torch.bool, device=keys.device).scatter_(-1, choice.slots, True)
    rows = torch.arange(is_kept.numel(), device=keys.device).view(is_kept.shape)
    # As many are evicted before the cut as are kept after it, in every head: the n-th goes to the n-th.
    evicted = rows[..., :num_kept][~is_kept[..., :num_kept]]
    after_cut = rows[..., num_kept:][is_kept[..., num_kept:]]
    for cached in (keys.view(-1, head_dim), values.view(-1, head_dim)):
        cached.index_copy_(0, evicted, cached.index_select(0, after_cut))
    return keys[:, :, :num_kept], values[:, :, :num_kept]


def _lag_scores(cached: Tensor, num_sinks: int, num_partitions: int, lag: int) -> Tensor:
    """(batch, kv_heads, num_partitions - 1, lag) float32."""
    end = num_sinks + num_partitions * lag
    partitions = cached[:, :, num_sinks:end].float().unflatten(2, (num_partitions, lag))
    own, following = partitions[:, :, :-1], partitions[:, :, 1:]
    low, high = following.amin(dim=-2, keepdim=True), following.amax(dim=-2, keepdim=True)
    return ((own - low) / (high - low)).std(dim=-1).softmax(dim=-1)


def _choice(index: Tensor, num_cached: int, num_last: int) -> Choice:
    """Sort the indices and put the last `num_last` slots after them."""
    last = torch.arange(num_cached - num_last, num_cached, device=index.device).expand(*index.shape[:2], -1)
    return Choice(torch.cat((index.sort(dim=-1).values, last), dim=-1), num_last)
