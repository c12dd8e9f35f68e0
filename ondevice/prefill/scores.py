"""Scores that a token gets once, when the chunk that brought it is distilled, and keeps."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ondevice.context import Context
from ondevice.pot.foresight import foretell
from ondevice.pot.memory_pot import MemoryPot
from ondevice.prefill.need import needs
from ondevice.prefill.repeat import repeat_peaks


def kept_score(pot: MemoryPot, scores: Sequence[Tensor]) -> list[Tensor]:
    """The scores of the tokens that are new since the last distillation; those before keep the one they had.

    Args:
        scores: for each layer (batch, num_kv_heads, num_cached).
    """
    # What is protected is infinitely important, and has no score.
    return [
        torch.cat((pot.importance[layer, ..., :ranked].nan_to_num(posinf=0.0), score[..., ranked:]), dim=-1)
        for layer, (ranked, score) in enumerate(zip(pot.num_ranked, scores, strict=True))
    ]


def _repeated(context: Context, unrepeated: Sequence[Tensor]) -> list[Tensor]:
    """What each slot was worth for repeating the passes (1, n) since the last distillation."""
    ids = torch.cat(list(unrepeated), dim=1)[0].cpu().numpy()
    return repeat_peaks(context.decoder, context.pot, ids, context.loaded.tokenizer)


def _foretold(context: Context, _: Sequence[Tensor]) -> list[Tensor]:
    """What the key and the value of each slot say of it."""
    pot, loaded = context.pot, context.loaded
    weights = needs(context.decoder, loaded.tokenizer, loaded.fingerprint).weights.to(context.decoder.device)
    by_layer = weights.view(pot.shape.num_layers, pot.shape.num_kv_heads, -1)
    return [
        foretell(weight, keys[..., :used, :], values[..., :used, :])
        for weight, keys, values, used in zip(by_layer, pot.keys, pot.values, pot.num_cached, strict=True)
    ]


# By what a policy observes: for each layer of the pot (batch, num_kv_heads, num_cached) float32.
SCORES: dict[str, Callable[[Context, Sequence[Tensor]], list[Tensor]]] = {
    "repetition": _repeated,
    "forecast": _foretold,
}
