"""A look into the host tier: which blocks of the document some queries look for.

It takes two steps. Mean keys of units (SlimInfer, equation 1) show where to look closely; only the keys of the best
blocks are then compared one by one. Keys are compared before RoPE: where a block stood says nothing about what it
holds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import torch
from torch import Tensor

from ondevice.kernels.attention import attention_votes
from ondevice.pot.host.chunks import UNIT_ROWS
from ondevice.pot.host.kv_tier import HostTier

CLOSE_LOOK = 4  # times as many blocks as may come back are compared key by key

Votes = Callable[[Tensor, Tensor], Tensor]  # queries and keys (num_kv_heads, n, head_dim) -> (n,)


def rank_blocks(
    tier: HostTier,
    queries: Sequence[Tensor],
    *,
    scale: float,
    softcap: float | None,
    block_size: int,
    first: int,
    coverage: float,
    num_close: int | None = None,
    present: Collection[int] = (),
) -> list[int]:
    """Blocks of the document that some queries look for in the tier, best first; none where nothing is in it.

    Every head of these layers votes for keys by the square of its attention (`attention_votes`), and a block has the
    votes of its keys.

    Args:
        queries: for each of the first layers (1, num_heads, n, head_dim) before RoPE; those layers vote.
        first: document tokens below this are left out.
        coverage: share of all votes; blocks beyond those that have so many are left out.
        num_close: blocks that are compared key by key; None: all.
        present: blocks that the pot holds wholly; they are left out.
    """

    def votes_for(query: Tensor, keys: Tensor) -> Tensor:
        return attention_votes(query.to(keys.dtype), keys[None], scale=scale, softcap=softcap)[0].cpu()

    origins = [tier.origin(layer).long() for layer in range(len(queries))]
    last = max((int(origin.max()) for origin in origins if origin.numel()), default=-1)
    num_blocks = last // block_size + 1
    is_close = torch.ones(num_blocks, dtype=torch.bool)
    is_close[[block for block in present if block < num_blocks]] = False
    if num_close is not None and num_close < int(is_close.sum()):
        rough = _votes_of_units(tier, queries, origins, block_size, num_blocks, first, votes_for)
        best = rough.masked_fill(~is_close, -1.0).topk(num_close).indices
        is_close = torch.zeros_like(is_close).index_fill_(0, best, True)
    votes = torch.zeros(num_blocks)
    for layer, (query, origin) in enumerate(zip(queries, origins, strict=True)):
        blocks = origin // block_size
        # What is left out takes up the attention of heads that look for nothing, and gets no votes.
        at = (is_close[blocks] | (origin < first)).nonzero().squeeze(1)
        if at.numel():
            given = votes_for(query, tier.keys(layer, at, query.device))
            votes.index_add_(0, blocks[at], given.masked_fill_(origin[at] < first, 0.0))
    ranked = votes.argsort(descending=True)
    before = votes[ranked].cumsum(0) - votes[ranked]
    return ranked[(votes[ranked] > 0) & (before < coverage * votes.sum())].tolist()


def _votes_of_units(
    tier: HostTier,
    queries: Sequence[Tensor],
    origins: Sequence[Tensor],
    block_size: int,
    num_blocks: int,
    first: int,
    votes_for: Votes,
) -> Tensor:
    """The votes of each block by mean keys, (num_blocks,): a unit that reaches into two blocks votes for both."""
    votes = torch.zeros(num_blocks)
    for layer, (query, origin) in enumerate(zip(queries, origins, strict=True)):
        if not origin.numel():
            continue
        given = votes_for(query, tier.unit_keys(layer, query.device))
        begins, ends = origin[::UNIT_ROWS], origin[UNIT_ROWS - 1 :: UNIT_ROWS]
        ends = torch.cat((ends, origin[-1:])) if ends.shape[0] < begins.shape[0] else ends
        is_left_out, others = ends < first, begins // block_size != ends // block_size
        given = given.masked_fill(is_left_out, 0.0)
        votes.index_add_(0, begins // block_size, given)
        votes.index_add_(0, ends[others] // block_size, given[others])
    return votes
