"""Scores of contenders that no attention observed in reading gives: of a text repeated, and of queries to come.

Repeat (KVzip, arXiv 2505.23416) gives a token its score once, from the repetition of the chunk that brought it.

Expected Attention (arXiv 2510.00636, section 3) takes the queries of a head before RoPE for normally distributed,
whatever is asked. Under that the mean of exp(q k) has a closed form, and no query has to be there. Where the queries
will stand is not known either: their mean and covariance are turned by the mean of the rotations of the next positions.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ondevice.context import Context
from ondevice.errors import ConfigError
from ondevice.model.decoder import Decoder
from ondevice.pot.memory_pot import MemoryPot
from ondevice.pot.policies import ByMass
from ondevice.prefill.repeat import repeat_peaks
from ondevice.prefill.scores import SCORES, kept_score

_AHEAD = 512  # positions of queries to come, as in the paper's code


class Measured(ByMass):
    """The policy of these scores. Its import, as a reading begins, adds them to the product's."""


def moments(queries: Tensor, turn: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and covariance of queries that are still to come.

    Args:
        queries: (batch, heads, n, dim), before RoPE.
        turn: (dim, dim) float32; what multiplies a row by the mean of the rotations.

    Returns:
        (batch, heads, dim) and (batch, heads, dim, dim), float32.
    """
    turned = queries.float() @ turn
    mean = turned.mean(dim=2, keepdim=True)
    around = turned - mean
    return mean[:, :, 0], around.transpose(-1, -2) @ around / queries.shape[2]


def expected_attention(
    keys: Tensor, values: Tensor, mean: Tensor, covariance: Tensor, *, scale: float, is_open: Tensor
) -> Tensor:
    """The share of the attention that each slot is expected to get, times the length of its value.

    Args:
        keys: (batch, kv_heads, n, dim), after RoPE.
        values: as `keys`.
        mean, covariance: of the queries of each head, from `moments`.
        scale: factor on the scores of attention.
        is_open: (batch, kv_heads, n): the slots that compete; sinks would draw most of it.

    Returns:
        (batch, kv_heads, n) float32, the mean over the query heads that share a KV head; 0 where a slot is not
        open.
    """
    batch, num_kv_heads, _, head_dim = keys.shape
    wide = keys.float()[:, :, None]
    mean = scale * mean.view(batch, num_kv_heads, -1, head_dim, 1)
    covariance = scale**2 / 2 * covariance.view(batch, num_kv_heads, -1, head_dim, head_dim)
    # log E[exp(q k)] of a normal distribution
    logits = (wide @ mean)[..., 0] + ((wide @ covariance) * wide).sum(dim=-1)
    share = logits.masked_fill(~is_open[:, :, None], -torch.inf).softmax(dim=-1).nan_to_num(0.0)
    return share.mean(dim=2) * values.float().norm(dim=-1)


def _repeated(context: Context, _: Sequence[Tensor]) -> list[Tensor]:
    """The worth of each new slot for repeating the passes that filled them."""
    pot = context.pot
    if not context.tokens.keeps_text:
        raise ConfigError("A stream cannot be gone back to, to be repeated", fix="Save it to a file first.")
    new = pot.origin[0, 0, 0, pot.num_ranked[0] : pot.num_cached[0]].cpu().numpy()  # the first layer holds all of them
    new = new[new >= 0]
    ids = context.tokens.ids(new[0], new[-1] + 1)[new - new[0]]
    peaks = repeat_peaks(context.decoder, pot, ids, context.loaded.tokenizer)
    return kept_score(pot, [peak[..., ranked:] for ranked, peak in zip(pot.num_ranked, peaks, strict=True)])


@torch.inference_mode()
def _expected(context: Context, queries: Sequence[Tensor]) -> list[Tensor]:
    """The attention that queries like those of the last pass would pay to each slot from the next positions on."""
    pot, decoder = context.pot, context.decoder
    mean_rotation, scores = dict[int, Tensor](), []
    for layer, (used, latest) in enumerate(zip(pot.num_cached, queries, strict=True)):
        if (first := pot.next_position[layer]) not in mean_rotation:
            mean_rotation[first] = _mean_rotation(decoder, pot, first)
        positions, slots = pot.positions[layer, ..., :used], slice(0, used)
        keys = decoder.seen_keys(pot, layer)
        mean, covariance = moments(latest, mean_rotation[first])
        is_open = positions >= context.num_protected
        values = pot.slots.values_at(layer, slots)
        score = expected_attention(keys, values, mean, covariance, scale=decoder.parts.scale, is_open=is_open)
        scores.append(score)
    return scores


def _mean_rotation(decoder: Decoder, pot: MemoryPot, first: int) -> Tensor:
    """The mean of the rotations of the positions from `first` on, (dim, dim): rows are multiplied by it."""
    size, end = pot.shape.head_dim, first + _AHEAD
    positions = torch.arange(first, end, dtype=torch.int32, device=decoder.device).expand(1, size, -1)
    each = torch.eye(size, dtype=decoder.dtype, device=decoder.device)[None, :, None].expand(-1, -1, _AHEAD, -1)
    return decoder.rotate_keys(each, positions, pot.max_positions, end)[0].float().mean(dim=1)


SCORES.update(repetition=_repeated, queries=_expected)
