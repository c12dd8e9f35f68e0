"""Scores that are no attention observed in reading: of a text repeated, of a prediction, of the queries of late.

Those of the first two a token gets once, when the chunk that brought it is distilled, and keeps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ondevice.context import Context
from ondevice.model.decoder import Decoder
from ondevice.pot.expected import expected_attention, moments
from ondevice.pot.learned_score import predict_attention
from ondevice.pot.memory_pot import MemoryPot
from ondevice.prefill.head_budgets import measure_head_budgets
from ondevice.prefill.repeat import repeat_peaks

_AHEAD = 512  # positions of queries to come, as in the paper's code


@dataclass(frozen=True, slots=True)
class RecentPasses:
    """The passes since the last distillation, as far as a policy may know them.

    Attributes:
        ids: (1, n) of each, where they are repeated.
        queries: of the last one, for each layer of the pot (batch, num_heads, n, head_dim) before RoPE; where they are
            used.
    """

    ids: Sequence[Tensor]
    queries: Sequence[Tensor]


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


def _repeated(context: Context, recent: RecentPasses) -> list[Tensor]:
    """The worth of each new slot for repeating the passes that filled them."""
    ids = torch.cat(list(recent.ids), dim=1)[0].cpu().numpy()
    peaks = repeat_peaks(context.decoder, context.pot, ids, context.loaded.tokenizer)
    new = [peak[..., ranked:] for ranked, peak in zip(context.pot.num_ranked, peaks, strict=True)]
    return kept_score(context.pot, new)


def _predicted(context: Context, _: RecentPasses) -> list[Tensor]:
    """The attention predicted for each new slot; a random number where no weights are known."""
    pot, loaded = context.pot, context.loaded
    weights = measure_head_budgets(context.decoder, loaded.tokenizer, loaded.fingerprint).weights
    filled = list(zip(pot.num_ranked, pot.num_cached, strict=True))
    if weights is None:
        generator = torch.Generator().manual_seed(context.config.seed + context.num_cycles)
        shapes = [pot.positions[layer, ..., first:used].shape for layer, (first, used) in enumerate(filled)]
        return kept_score(pot, [torch.rand(one, generator=generator).to(pot.positions.device) for one in shapes])
    by_layer = weights.to(context.decoder.device).view(pot.shape.num_layers, pot.shape.num_kv_heads, -1)
    scores = []
    for layer, (first, used) in enumerate(filled):
        if pot.is_coded:
            coded, new = pot.coded(layer, used), slice(first, used)
            keys, values = coded.wide_keys(torch.float32, new), coded.wide_values(torch.float32, new)
        else:
            keys, values = (kept[layer][..., first:used, :] for kept in (pot.keys, pot.values))
        scores.append(predict_attention(by_layer[layer], keys, values))
    return kept_score(pot, scores)


@torch.inference_mode()
def _expected(context: Context, recent: RecentPasses) -> list[Tensor]:
    """The attention that queries like those of the last pass would pay to each slot from the next positions on."""
    pot, decoder = context.pot, context.decoder
    mean_rotation, scores = dict[int, Tensor](), []
    for layer, (used, queries) in enumerate(zip(pot.num_cached, recent.queries, strict=True)):
        if (first := pot.next_position[layer]) not in mean_rotation:
            mean_rotation[first] = _mean_rotation(decoder, pot, first)
        positions, slots = pot.slots.to_layer_device(pot.positions[layer, ..., :used], layer), slice(0, used)
        keys = decoder.seen_keys(pot, layer, first)
        mean, covariance = (pot.slots.to_layer_device(part, layer) for part in moments(queries, mean_rotation[first]))
        is_open = positions >= context.num_protected
        values = pot.slots.values_at(layer, slots)
        score = expected_attention(keys, values, mean, covariance, scale=decoder.parts.scale, is_open=is_open)
        scores.append(score.to(decoder.device))
    return scores


def _mean_rotation(decoder: Decoder, pot: MemoryPot, first: int) -> Tensor:
    """The mean of the rotations of the positions from `first` on, (head_dim, head_dim): rows are multiplied by it."""
    size, end = pot.shape.head_dim, first + _AHEAD
    positions = torch.arange(first, end, dtype=torch.int32, device=decoder.device).expand(1, size, -1)
    each = torch.eye(size, dtype=decoder.dtype, device=decoder.device)[None, :, None].expand(-1, -1, _AHEAD, -1)
    return decoder.rotate_keys(each, positions, pot.max_positions, end)[0].float().mean(dim=1)


# By what a policy observes: for each layer of the pot (batch, num_kv_heads, num_cached) float32.
SCORES: dict[str, Callable[[Context, RecentPasses], list[Tensor]]] = {
    "repetition": _repeated,
    "predicted": _predicted,
    "queries": _expected,
}
