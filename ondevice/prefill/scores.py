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


def kept_score(pot: MemoryPot, new: Sequence[Tensor]) -> list[Tensor]:
    """The scores of all slots: those before the last distillation keep the one they had.

    Args:
        new: for each layer (batch, num_kv_heads, n), of the slots that were filled since.
    """
    # What is protected is infinitely important, and has no score.
    return [
        torch.cat((pot.importance[layer, ..., :ranked].nan_to_num(posinf=0.0), score), dim=-1)
        for layer, (ranked, score) in enumerate(zip(pot.num_ranked, new, strict=True))
    ]


def _repeated(context: Context, unrepeated: Sequence[Tensor]) -> list[Tensor]:
    """What each new slot was worth for repeating the passes (1, n) that filled them."""
    ids = torch.cat(list(unrepeated), dim=1)[0].cpu().numpy()
    peaks = repeat_peaks(context.decoder, context.pot, ids, context.loaded.tokenizer)
    return [peak[..., ranked:] for ranked, peak in zip(context.pot.num_ranked, peaks, strict=True)]


def _foretold(context: Context, _: Sequence[Tensor]) -> list[Tensor]:
    """What the key and the value of each new slot say of it."""
    pot, loaded = context.pot, context.loaded
    weights = needs(context.decoder, loaded.tokenizer, loaded.fingerprint).weights.to(context.decoder.device)
    by_layer = weights.view(pot.shape.num_layers, pot.shape.num_kv_heads, -1)
    scores = []
    for layer, (first, used) in enumerate(zip(pot.num_ranked, pot.num_cached, strict=True)):
        if pot.is_coded:
            coded, new = pot.coded(layer, used), slice(first, used)
            keys, values = coded.wide_keys(torch.float32, new), coded.wide_values(torch.float32, new)
        else:
            keys, values = (kept[layer][..., first:used, :] for kept in (pot.keys, pot.values))
        scores.append(foretell(by_layer[layer], keys, values))
    return scores


# By what a policy observes: for each layer of the pot (batch, num_kv_heads, n) float32, of the slots that are new.
SCORES: dict[str, Callable[[Context, Sequence[Tensor]], list[Tensor]]] = {
    "repetition": _repeated,
    "forecast": _foretold,
}
