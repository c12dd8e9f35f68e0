"""Bringing evicted tokens back into the pot: which blocks a question needs, and how they get in.

Blocks are `block_size` neighbouring tokens of the document. All layers bring back the same ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ondevice.pot.host.kv_tier import HostTier
from ondevice.pot.memory_pot import MemoryPot, NewTokens
from ondevice.pot.numbering import number_by_origin_


@dataclass(frozen=True, slots=True)
class Moved:
    """Tokens that came into the pot: wanted ones of an average head, summed over the layers, all bytes, and the wanted
    document tokens that any head took (n,) int32, rising. `num_aside` tokens that the pot held had to leave it, counted
    like `num_slots`."""

    num_slots: int
    num_aside: int
    num_bytes: int
    tokens: npt.NDArray[np.int32]


def bring_back(
    pot: MemoryPot,
    tier: HostTier,
    blocks: Sequence[int],
    *,
    block_size: int,
    staying: Sequence[int] = (),
    max_tokens: int,
    num_beside: int,
    num_free: int,
    num_more: Sequence[int],
) -> Moved:
    """Put tokens of the best blocks into the pot, and leave out what it holds far from those.

    Tokens that the pot kept for the attention that they drew draw it now, too, away from what the question looks for:
    only those stay that lie nearest to the blocks in the document. Every head takes the wanted tokens that it does not
    hold. All heads of a layer use equally many slots, so that where there are free ones a head that lacks fewer takes
    neighbours of the wanted tokens, too. Afterwards positions are the ranks in document order.

    Args:
        pot: changed in place; the caller has saved what it holds.
        blocks: of the document, the most wanted first.
        staying: blocks of the document that the pot holds and that are wanted, too: their tokens stay first.
        max_tokens: for each head of each layer.
        num_beside: tokens of the document that stay, at most; more where a head lacks fewer tokens than another.
        num_free: slots that have to stay free, as far as those that stay leave so many.
        num_more: for each layer slots that are left free beside those, for what else comes.
    """
    num_moved, num_aside, num_bytes, taken = 0, 0, 0, [np.empty(0, np.int32)]
    origins = [tier.origin(layer).long() for layer in range(len(pot.num_cached))]
    last = max((int(origin.max()) for origin in origins if origin.numel()), default=0)
    last = max(last, int(pot.origin.max()))
    all_blocks = torch.arange(max(last // block_size, *blocks) + 1)
    distance = (all_blocks[:, None] - torch.tensor(blocks)).abs().amin(dim=1)  # to the nearest wanted one, in blocks
    order = _order_of_blocks(blocks, distance)
    distance[[block for block in staying if block < distance.shape[0]]] = 0
    places: _Places | None = None
    for layer, origin in enumerate(origins):
        used, limit = pot.num_cached[layer], pot.capacities[layer] - num_free - num_more[layer]
        is_protected = pot.positions[layer, :, :, :used] < pot.num_protected
        num_staying = int(is_protected.sum(dim=-1).max())
        if places is None or not torch.equal(places.origin, origin):  # usually all layers hold the same
            places = _Places(origin, order, block_size, len(blocks))
        heads = [_Lacking(places, held) for held in pot.origin[layer, 0, :, :used].cpu().long()]
        wanted = [max(min(head.wanted.shape[0], max_tokens, limit - num_staying), 0) for head in heads]
        grown = min(max(wanted), *(head.count for head in heads))
        num_used = max(min(min(used, num_staying + num_beside) + grown, limit), num_staying)
        counts = [min(max(count, num_used - used), num_used - num_staying) for count in wanted]
        num_aside += sum(used - num_used + count for count in counts)
        if num_used < used + max(counts):  # the furthest come last, where they are overwritten or left out
            at = pot.origin[layer, :, :, :used].long().clamp(min=0) // block_size
            away = distance.to(at.device)[at].masked_fill(is_protected, -1)
            pot.compact_(slice(layer, layer + 1), away.argsort(dim=-1, stable=True)[None, ..., :num_used])
        if not any(counts):
            continue
        taken_places = [head.first(count) for head, count in zip(heads, counts, strict=True)]
        distinct = torch.cat(taken_places).unique()
        device = pot.positions.device
        parts = tier.parts(layer, distinct, device)
        index = [torch.searchsorted(distinct, part).to(device) for part in taken_places]
        origins_of = [origin[part].int().to(device) for part in taken_places]
        new = [NewTokens([part[head, at] for part in parts], origins_of[head]) for head, at in enumerate(index)]
        pot.insert_last_(layer, num_used, new)
        num_bytes += sum(tokens.nbytes for tokens in new)
        for head, count, part in zip(heads, wanted, taken_places, strict=True):
            num_moved += min(count, part.shape[0])
            taken.append(origin[part[: head.wanted.shape[0]]].int().numpy())
    number_by_origin_(pot)
    num_slots, num_aside = (round(count / pot.shape.kv_size[1]) for count in (num_moved, num_aside))
    return Moved(num_slots, num_aside, num_bytes, np.unique(np.concatenate(taken)))


def _order_of_blocks(blocks: Sequence[int], distance: Tensor) -> Tensor:
    """The rank of each block of the document, (num_blocks,) int64: those wanted in their order, then by distance."""
    order = len(blocks) - 1 + distance
    order[torch.tensor(blocks)] = torch.arange(len(blocks))
    return order


class _Places:
    """Places in the tier of the tokens of one layer, `origin` (n,) int64; blocks below rank `num_wanted` are wanted.

    `ranks` (n,) are of the blocks, `wanted` the places of wanted ones, the most wanted first; `has` (tokens of all
    blocks,) bool says whether the tier has a token.
    """

    def __init__(self, origin: Tensor, order: Tensor, block_size: int, num_wanted: int) -> None:
        self.origin, self.num_wanted = origin, num_wanted
        self.ranks = order[origin // block_size]
        wanted = (self.ranks < num_wanted).nonzero().squeeze(1)
        self.wanted = wanted[self.ranks[wanted].argsort(stable=True)]
        self.has = torch.zeros(order.shape[0] * block_size, dtype=torch.bool)
        self.has[origin] = True


class _Lacking:
    """Places in the tier of tokens that one head, which holds document tokens `held` (m,) int64, does not hold.

    `wanted` (n,) int64 are those of wanted blocks, the most wanted first; there are `count` in all.
    """

    def __init__(self, places: _Places, held: Tensor) -> None:
        held = held[(held >= 0) & (held < places.has.shape[0])]
        self._places, self._is_held = places, torch.zeros_like(places.has).index_fill_(0, held, True)
        self.wanted = places.wanted[~self._is_held[places.origin[places.wanted]]]
        self.count = places.origin.shape[0] - int(places.has[held].sum())

    def first(self, count: int) -> Tensor:
        """The best of them: after the wanted ones those of the nearest blocks."""
        num_others, places = count - self.wanted.shape[0], self._places
        if num_others <= 0:
            return self.wanted[:count]
        missing = (~self._is_held[places.origin]).nonzero().squeeze(1)
        others = missing[places.ranks[missing] >= places.num_wanted]
        return torch.cat((self.wanted, others[places.ranks[others].argsort(stable=True)[:num_others]]))
