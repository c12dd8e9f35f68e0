"""Bringing evicted tokens back into the pot: which blocks a question needs, and how they get in.

Blocks are `block_size` neighbouring tokens of the document. All layers bring back the same ones, chosen by a vote.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ondevice.kernels.attention import attention_votes
from ondevice.kernels.pot_update import take_slots
from ondevice.pot.distill import RotateKeys
from ondevice.pot.host_tier import HostTier
from ondevice.pot.memory_pot import MemoryPot


@dataclass(frozen=True, slots=True)
class Swap:
    """Algorithm 1 of SlimInfer: the new active blocks, those to copy out of the pot, those to copy into it."""

    active: frozenset[int]
    offload: frozenset[int]
    load: frozenset[int]


@dataclass(frozen=True, slots=True)
class Moved:
    """What came into the pot: slots of one head, summed over the layers, bytes, and the document tokens that any head
    took (n,) int32, rising."""

    num_slots: int
    num_bytes: int
    tokens: npt.NDArray[np.int32]


def plan_swap(candidate: frozenset[int], active: frozenset[int], in_memory: frozenset[int], gamma: float) -> Swap:
    """Overlap-aware swapping (SlimInfer, algorithm 1): nothing moves while most candidates are active already.

    Args:
        candidate: blocks that score highest now.
        active: blocks in the pot.
        in_memory: blocks that the host has a copy of; they are released at once.
        gamma: overlap from which on the active blocks stay.
    """
    if not candidate or len(candidate & active) / len(candidate) >= gamma:
        return Swap(active, frozenset(), frozenset())
    return Swap(candidate, (active - candidate) - in_memory, candidate - active)


def rank_blocks(
    tier: HostTier,
    queries: Sequence[Tensor],
    *,
    scale: float,
    softcap: float | None,
    block_size: int,
    first: int,
    coverage: float,
) -> list[int]:
    """Blocks of the document that some queries look for in the tier, best first.

    Every head of these layers votes for the tokens in the tier, by the square of its attention (`attention_votes`),
    and a block has the votes of its tokens. Keys are compared before RoPE: where a block stood says nothing about
    what it holds.

    Args:
        queries: for each of the first layers (1, num_heads, n, head_dim) before RoPE; those layers vote.
        first: document tokens below this are left out.
        coverage: share of all votes; blocks beyond those that have so many are left out.
    """
    num_blocks = int(tier.origin.max()) // block_size + 1
    votes = torch.zeros(num_blocks)
    for layer, query in enumerate(queries):
        held = slice(0, tier.num_held(layer))
        keys, origin = tier.keys(layer, held)[None], tier.origin[layer, held].long()
        given = attention_votes(query.to(keys.device), keys, scale=scale, softcap=softcap)[0]
        votes.index_add_(0, origin // block_size, given.masked_fill_(origin < first, 0.0))
    ranked = votes.argsort(descending=True)
    before = votes[ranked].cumsum(0) - votes[ranked]
    return ranked[(votes[ranked] > 0) & (before < coverage * votes.sum())].tolist()


def bring_back(
    pot: MemoryPot,
    tier: HostTier,
    blocks: Sequence[int],
    mass: Sequence[Tensor],
    *,
    block_size: int,
    max_tokens: int,
    num_free: int,
    num_protected: int,
    num_more: Sequence[int],
    rotate_keys: RotateKeys,
) -> Moved:
    """Put tokens of the best blocks into the pot, over the slots that the question heeds least where it is full.

    Every head takes the tokens that it does not hold. Afterwards positions are the ranks in document order.

    Args:
        pot: changed in place; whoever calls has saved what it holds.
        blocks: of the document, the most wanted first.
        mass: attention of the question, for each layer (1, num_kv_heads, num_cached).
        max_tokens: for each head of each layer.
        num_free: slots that have to stay free.
        num_protected: slots at logical positions below this stay (prompt and sinks).
        num_more: for each layer slots that are left free beside those, for what else comes.
    """
    num_slots, num_bytes, taken = 0, 0, [np.empty(0, np.int32)]
    rank = torch.full((max(blocks) + 2,), len(blocks))  # of each block; the last entry stands for all beyond
    rank[torch.tensor(blocks)] = torch.arange(len(blocks))
    for layer in range(pot.shape.num_layers):
        places = _missing(pot, tier, layer, rank, block_size, max_tokens)
        size, used = places.shape[-1], pot.num_cached[layer]
        num_kept = min(used, pot.keys[layer].shape[2] - num_free - num_more[layer] - size)
        if num_kept < used:
            is_protected = pot.positions[layer, :, :, :used] < num_protected
            heeded = mass[layer].masked_fill(is_protected, torch.inf)
            pot.keep(slice(layer, layer + 1), heeded.topk(num_kept, dim=-1).indices[None])
        if size:
            distinct, where = places.unique(return_inverse=True)
            device = pot.positions.device
            keys, values = (read(layer, distinct)[None].to(device) for read in (tier.keys, tier.values))
            index = where[None].to(device)
            new_keys, new_values = take_slots(keys.contiguous(), index), take_slots(values.contiguous(), index)
            pot.insert(layer, new_keys, new_values, tier.origin[layer, places][None].to(device))
            num_slots += size
            taken.append(tier.origin[layer, distinct].numpy())
            num_bytes += new_keys.nbytes + new_values.nbytes
    pot.number_by_origin(rotate_keys)
    return Moved(num_slots, num_bytes, np.unique(np.concatenate(taken)))


def _missing(pot: MemoryPot, tier: HostTier, layer: int, rank: Tensor, block_size: int, max_tokens: int) -> Tensor:
    """Places in the tier of the best tokens that each head lacks: (num_kv_heads, n) int64, n the same for all."""
    origin = tier.origin[layer, : tier.num_held(layer)].long()
    order = rank[(origin // block_size).clamp(max=rank.shape[0] - 1)]
    candidates = order.argsort(stable=True)
    candidates = candidates[order[candidates] < rank[-1]]
    chosen = []
    for held in pot.origin[layer, 0, :, : pot.num_cached[layer]].cpu():
        is_missing = ~torch.isin(origin[candidates], held.long())
        chosen.append(candidates[is_missing][:max_tokens])
    size = min((head.shape[0] for head in chosen), default=0)
    return torch.stack([head[:size] for head in chosen])
