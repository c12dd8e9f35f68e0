"""Head budgets: the share of slots of each KV head, and its learned score. Measured once, on a text of our own.

Heads differ much in how many tokens they look at, and little from text to text: what a head would need to repeat one
text it needs for another. So the slots are shared out before a document is read, and stay. How they differ depends on
how much is kept: the fewer slots there are, the larger is the part of the few heads that copy. So the counts are
a table by the part that is kept. The same repetition fits the linear models of `pot.learned_score`. Both are kept
beside the converted weights.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ondevice.model.decoder import Decoder
from ondevice.model.tokenizer import Tokenizer
from ondevice.pot.learned_score import NotSolved, fit
from ondevice.prefill.measured_once import MeasuredOnce, first_ids
from ondevice.prefill.repeat import repeat_peaks

_TOKENS, _ROOM = 1024, 640  # of half the text, or of twice as much, shares differ by about one part in ten
NUM_SLOTS = _TOKENS + _ROOM  # of the pot that it is measured in
PASS_SIZE = 512  # tokens of a pass, of the text and of its repetition
_FIRST = 4  # tokens that say nothing of others: sinks
_PARTS = tuple(2 ** (-step / 2) for step in range(1, 13))  # of all slots that are kept: those whose heads are counted
_LEAST = 0.05  # of an even share, so that no head is left with nothing


class HeadBudgets(NamedTuple):
    """Measurements of the heads of a model, on the CPU.

    Attributes:
        counts: the slots of each head among the best `_PARTS` of all, (parts, layers, kv_heads) int32.
        weights: of `pot.learned_score`, (layers, kv_heads, 2 * dim + 3) float32; None where measuring has
            failed, and all heads count alike.
    """

    counts: Tensor
    weights: Tensor | None


def head_shares(decoder: Decoder, tokenizer: Tokenizer, fingerprint: str, part: float) -> Tensor:
    """The share of each KV head among the slots that a text is repeated from, 1 on average.

    Args:
        part: of all tokens of a document that a head keeps on average, above 0.

    Returns:
        (layers, kv_heads) float32, on the CPU.
    """
    counts = measure_head_budgets(decoder, tokenizer, fingerprint).counts.float()
    # Between two rows of the table in proportion to the logarithm of the part.
    at = min(max(-2 * math.log2(part) - 1, 0.0), len(_PARTS) - 1.0)
    below = min(int(at), len(_PARTS) - 2)
    need = torch.lerp(counts[below], counts[below + 1], at - below)
    shares = (need / need.mean()).clamp_min(_LEAST)
    return shares / shares.mean()


def _measured(decoder: Decoder, tokenizer: Tokenizer) -> HeadBudgets:
    """Read and repeat about 1,000 tokens in a pot of its own. If that fails, all heads count alike until the model is
    loaded again."""
    ids = first_ids(decoder, tokenizer, _TOKENS)
    pot = decoder.new_pot(len(ids) + _ROOM)
    for start in range(0, len(ids), PASS_SIZE):
        decoder.forward(decoder.ids(ids[start : start + PASS_SIZE]), pot)
    peaks = torch.stack(repeat_peaks(decoder, pot, ids, tokenizer))[:, 0].cpu()
    best_first = peaks.flatten().argsort(descending=True, stable=True)
    counts = []
    for part in _PARTS:
        is_kept = torch.zeros(peaks.numel(), dtype=torch.int32)
        is_kept[best_first[: max(round(part * peaks.numel()), 1)]] = 1
        counts.append(is_kept.view_as(peaks).sum(dim=-1, dtype=torch.int32))
    told = slice(_FIRST, len(ids))
    keys, values = (torch.stack([layer[0, :, told] for layer in kept]).cpu() for kept in (pot.keys, pot.values))
    try:
        return HeadBudgets(torch.stack(counts), fit(keys, values, peaks[..., told]).contiguous())
    except NotSolved:  # then nothing that was seen is to be relied on
        return HeadBudgets(torch.ones(len(_PARTS), *peaks.shape[:2], dtype=torch.int32), None)


def _suits(known: HeadBudgets, decoder: Decoder) -> bool:
    counts, weights, (*heads, dim) = *known, decoder.parts.kv_size
    return (
        counts.shape == (len(_PARTS), *heads)
        and counts.dtype == torch.int32
        and bool((counts >= 0).all())
        and bool((counts.sum(dim=(1, 2)) > 0).all())
        and weights is not None
        and weights.shape == (*heads, 2 * dim + 3)
        and weights.dtype == torch.float32
        and bool(weights.isfinite().all())
    )


_BUDGETS = MeasuredOnce("head-need", HeadBudgets, _measured, _suits)
measure_head_budgets, known_head_budgets = _BUDGETS.take, _BUDGETS.known


def share_out(need: Sequence[float], num_slots: int, low: int, high: int) -> tuple[int, ...]:
    """Whole numbers in proportion to `need`, each between two bounds, `num_slots` together.

    The bounds leave room for that: low * n <= num_slots <= high * n.
    """
    assert low * len(need) <= num_slots <= high * len(need)
    scale_low, scale_high = 0.0, num_slots / min(need) + high / min(need)
    for _ in range(100):  # the sum grows with the scale
        scale = (scale_low + scale_high) / 2
        if sum(_bounded(one * scale, low, high) for one in need) <= num_slots:
            scale_low = scale
        else:
            scale_high = scale
    shares = [_bounded(one * scale_low, low, high) for one in need]
    # What rounding leaves goes to those that need most and have room for it.
    for index in sorted(range(len(need)), key=need.__getitem__, reverse=True):
        more = min(num_slots - sum(shares), high - shares[index])
        shares[index] += more
    return tuple(shares)


def _bounded(number: float, low: int, high: int) -> int:
    return int(min(max(number + 1e-6, low), high))
