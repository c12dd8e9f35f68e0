"""Scores that are no attention observed in reading, but predicted.

A token gets its score once, when the chunk that brought it is distilled, and keeps it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ondevice.context import Context
from ondevice.pot.learned_score import predict_attention
from ondevice.pot.memory_pot import MemoryPot
from ondevice.prefill.head_budgets import measure_head_budgets


def kept_score(pot: MemoryPot, new: Sequence[Tensor]) -> list[Tensor]:
    """The scores of all slots: those before the last distillation keep the one they had.

    Args:
        new: for each layer (batch, kv_heads, n), of the slots that were filled since.
    """
    # What is protected is infinitely important, and has no score.
    return [
        torch.cat((pot.importance[layer, ..., :ranked].nan_to_num(posinf=0.0), score), dim=-1)
        for layer, (ranked, score) in enumerate(zip(pot.num_ranked, new, strict=True))
    ]


def _predicted(context: Context, _: Sequence[Tensor]) -> list[Tensor]:
    """The attention predicted for each new slot; a random number where no weights are known."""
    pot, loaded = context.pot, context.loaded
    weights = measure_head_budgets(context.decoder, loaded.tokenizer, loaded.fingerprint).weights
    filled = list(zip(pot.num_ranked, pot.num_cached, strict=True))
    if weights is None:
        generator = torch.Generator().manual_seed(context.config.seed + context.num_cycles)
        shapes = [pot.positions[layer, ..., first:used].shape for layer, (first, used) in enumerate(filled)]
        return kept_score(pot, [torch.rand(one, generator=generator).to(pot.positions.device) for one in shapes])
    by_layer = weights.to(context.decoder.device).view(*pot.shape.kv_size[:2], -1)
    scores = []
    for layer, (first, used) in enumerate(filled):
        if pot.is_coded:
            coded, new = pot.coded(layer, used), slice(first, used)
            keys, values = coded.wide_keys(torch.float32, new), coded.wide_values(torch.float32, new)
        else:
            keys, values = (kept[layer][..., first:used, :] for kept in (pot.keys, pot.values))
        scores.append(predict_attention(by_layer[layer], keys, values))
    return kept_score(pot, scores)


# By what a policy observes: for each layer of the pot (batch, kv_heads, num_cached) float32. Given are the queries
# of the last pass, where the policy observes them: for each layer (batch, heads, n, dim) before RoPE.
SCORES: dict[str, Callable[[Context, Sequence[Tensor]], list[Tensor]]] = {"predicted": _predicted}
