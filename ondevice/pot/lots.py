"""Lots: a part of the slots is drawn, so that a token that falls below the cut once is not gone for good.

Weighted sampling without replacement by the keys of Efraimidis and Spirakis (2006), as a reservoir over a stream: a
token's key is u ** (1 / weight), and the largest keys stay. Its u is made from the token itself. So it is the same at
every distillation, nothing has to be stored for it, and what was drawn once stays drawn while its weight does.
Nexus Sampling (arXiv 2606.23961) argues for sampling in place of a cut.
"""

from __future__ import annotations

import torch
from torch import Tensor

_LEAST_WEIGHT = 1e-6  # of the largest: what scores nothing is drawn last, but has a place in the order
_WORD = 0xFFFFFFFF


def by_lot(scores: Tensor, lots: Tensor, num_kept: int, share: float) -> Tensor:
    """Scores under which a share of what is kept is drawn, with the given scores for weights.

    Args:
        scores: (..., n) float32, higher = keep; infinite for what has to stay.
        lots: (..., n) float32, from `lots_of`, or the same for all heads.
        num_kept: slots that will be kept.
        share: of those, what is drawn; the others are the best.

    Returns:
        (..., n) float32: infinite for the best, for the others what orders them by their keys.
    """
    best = scores.topk(num_kept - round(share * num_kept), dim=-1).indices
    largest = scores.masked_fill(scores.isinf(), 0.0).amax(dim=-1, keepdim=True).clamp_min(1e-30)
    weights = scores.minimum(largest).maximum(_LEAST_WEIGHT * largest)
    # u ** (1 / weight) is in the order of weight / -log(u).
    return (weights / lots).scatter(-1, best, torch.inf)


def lots_of(origin: Tensor, first_layer: int, seed: int, *, per_head: bool) -> Tensor:
    """Exponentially distributed numbers, -log(u), that stay with their token, layer, head and seed.

    Args:
        origin: (num_layers, batch, num_kv_heads, n) int32, the document tokens of some layers.
        first_layer: the number of the first of those.
        per_head: whether heads draw apart.

    Returns:
        As `origin`, float32, above 0.
    """
    num_layers, _, num_heads, _ = origin.shape
    layers = torch.arange(first_layer, first_layer + num_layers, device=origin.device).view(-1, 1, 1, 1)
    heads = torch.arange(num_heads, device=origin.device).view(-1, 1) * per_head
    word = _mixed(_mixed(_mixed(_mixed(layers) ^ (seed & _WORD)) ^ heads) ^ (origin.long() & _WORD))
    return -((word.double() + 0.5) / (_WORD + 1)).log().float()


def _mixed(word: Tensor) -> Tensor:
    """Bits of 32-bit numbers, int64, well mixed: the finaliser of MurmurHash3."""
    word = word & _WORD
    word = (word ^ (word >> 16)) * 0x85EBCA6B & _WORD
    word = (word ^ (word >> 13)) * 0xC2B2AE35 & _WORD
    return word ^ (word >> 16)
