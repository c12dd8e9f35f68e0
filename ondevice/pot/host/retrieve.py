"""Rank host-tier blocks by attention to the question's keys.

It takes two steps. Mean keys of units (SlimInfer, equation 1) show where to look closely; only the keys of the best
blocks are then compared one by one. Keys are compared before RoPE: where a block stood says nothing about what it
holds.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TypedDict

import torch
from torch import Tensor

from ondevice.kernels.attention_sharpness import attention_sharpness, attention_sums
from ondevice.pot.host.chunks import UNIT_ROWS
from ondevice.pot.host.kv_tier import HostTier

# Times as many blocks as may come back are compared key by key. With 4, of 12 cues of a text of 6,000 tokens one was
# missed that all keys find, and recall fell from 0.99 to 0.93.
CLOSE_LOOK = 8
COVERAGE = 0.95  # of what a question looks for: blocks beyond those that have it stay outside
# What a head looks for often ends a block, and what follows it is wanted then: a score of a key counts for the block in
# which the token so much further on lies, too.
FOLLOWING = 16


class _How(TypedDict):
    """The parameters of scores beside queries and keys."""

    scale: float
    softcap: float | None


@dataclass(frozen=True, slots=True)
class _Held:
    """Of one layer of the tier the `blocks` (n,) int64 of each place, `begins` and `ends` (num_units,) of the first and
    the last place of each unit; `is_left_out` (n,) places whose tokens are no candidates."""

    origin: Tensor
    blocks: Tensor
    begins: Tensor
    ends: Tensor
    is_left_out: Tensor


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
    also_close: Sequence[int] = (),
    present: Collection[int] = (),
) -> list[int]:
    """Blocks of the document that some queries look for in the tier, best first; none where nothing is in it.

    A key scores the squared attention that all heads of these layers pay it (`attention_sharpness`), a block the sum
    over its keys and those shortly before it. What is not compared key by key takes up attention as its mean keys do.

    Args:
        queries: for each of the first layers (1, heads, n, dim) before RoPE; those layers score.
        first: document tokens below this are left out.
        coverage: share of the sum of all scores; blocks after those that reach it are left out.
        num_close: blocks that are compared key by key for their mean keys; None: all.
        also_close: further blocks that are.
        present: blocks that the pot holds wholly; they are left out.
    """
    held = _held(tier, range(len(queries)), block_size, first)
    num_blocks = max((int(layer.blocks.max()) for layer in held if layer.blocks.numel()), default=-1) + 1
    how: _How = {"scale": scale, "softcap": softcap}
    is_close, sums = torch.ones(num_blocks, dtype=torch.bool), list[Tensor]()
    is_close[[block for block in present if block < num_blocks]] = False
    if num_close is not None and num_close < int(is_close.sum()):
        rough, sums = _rough_scores(tier, queries, held, num_blocks, how)
        best = rough.masked_fill(~is_close, -1.0).topk(num_close).indices
        is_chosen = torch.zeros_like(is_close)
        is_chosen[[*best.tolist(), *(block for block in also_close if block < num_blocks)]] = True
        is_close &= is_chosen
    else:
        is_close.fill_(True)
    scores = torch.zeros(num_blocks)
    for index, (query, layer) in enumerate(zip(queries, held, strict=True)):
        at = is_close[layer.blocks].nonzero().squeeze(1)
        if not at.numel():
            continue
        others = _others(tier, index, query, at // UNIT_ROWS, sums[index], how) if sums else None
        given, _ = attention_sharpness(query.float(), tier.keys(index, at, query.device)[None], others=others, **how)
        given = given[0].cpu().masked_fill_(layer.is_left_out[at], 0.0)
        for further in (0, min(FOLLOWING, block_size)):
            blocks = (layer.origin[at].long() + further) // block_size
            scores.index_add_(0, blocks.clamp_(max=num_blocks - 1), given)
    scores[[block for block in present if block < num_blocks]] = 0.0
    ranked = scores.argsort(descending=True)
    before = scores[ranked].cumsum(0) - scores[ranked]
    return ranked[(scores[ranked] > 0) & (before < coverage * scores.sum())].tolist()


def _held(tier: HostTier, layers: range, block_size: int, first: int) -> list[_Held]:
    """The contents of each layer; layers with the same tokens share them."""
    held: list[_Held] = []
    for layer in layers:
        origin = tier.origin(layer)
        if held and torch.equal(held[-1].origin, origin):
            held.append(held[-1])
            continue
        blocks = origin.long() // block_size
        ends = torch.cat((blocks[UNIT_ROWS - 1 :: UNIT_ROWS], blocks[-1:] if len(blocks) % UNIT_ROWS else blocks[:0]))
        held.append(_Held(origin, blocks, blocks[::UNIT_ROWS], ends, origin < first))
    return held


def _rough_scores(
    tier: HostTier, queries: Sequence[Tensor], held: Sequence[_Held], num_blocks: int, how: _How
) -> tuple[Tensor, list[Tensor]]:
    """The score of each block by its best mean key, (num_blocks,), and the log-sum-exp of each layer.

    A unit that reaches into two blocks counts for both (SlimInfer, equation 2, has the best unit speak for a block).
    """
    scores, sums = torch.zeros(num_blocks), []
    for index, (query, layer) in enumerate(zip(queries, held, strict=True)):
        if not layer.blocks.numel():
            sums.append(torch.empty(0))
            continue
        given, total = attention_sharpness(query.float(), tier.unit_keys(index, device=query.device)[None], **how)
        best = torch.zeros(num_blocks)
        for blocks in (layer.begins, layer.ends):
            best.scatter_reduce_(0, blocks, given[0].cpu(), "amax")
        scores += best
        sums.append(total)
    return scores, sums


def _others(tier: HostTier, layer: int, query: Tensor, units: Tensor, total: Tensor, how: _How) -> Tensor:
    """The log-sum-exp of all but some units, which are compared key by key: as if each key were the mean one."""
    close = attention_sums(query.float(), tier.unit_keys(layer, units.unique(), query.device)[None], **how)
    return total + torch.log1p(-(close - total).exp().clamp(max=1 - 1e-6)) + math.log(UNIT_ROWS)
