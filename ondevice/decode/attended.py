"""Attention of a question to all that was read, whether the pot still holds it or the host tier.

The second half of the layers find the passage of an answer more often than words do. Keys are compared before RoPE:
where something stands says nothing about what it says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ondevice.context import Context
from ondevice.kernels.attention import attention_mass
from ondevice.pot.host.chunks import UNIT_ROWS

_MAX_SCORES = 1 << 22  # held at once
_NEUTRAL = "N/A"  # a question without content: what it attends to, any question does (arXiv 2410.02642)


def may_attend(context: Context) -> bool:
    """True if all of the document is read and every layer can attend to it, in the pot or in the host tier."""
    if context.spans or not context.tokens.keeps_text:
        return False
    if context.holds_all:
        return True
    tier = None if context.host is None else context.host.tier
    is_whole = tier is not None and 0 < tier.num_written(0) <= tier.capacity
    return is_whole and not context.num_skipped and not context.depths.state.size


def attended(
    context: Context, question: str, ids: list[int], is_stopped: Callable[[], bool]
) -> npt.NDArray[np.float64] | None:
    """Attention of a question to each token of the document beyond that of a question without content, shape (n,).

    Args:
        ids: the question with what stands before it; only its own queries count.

    Returns:
        None where the question has no room in the pot.

    Raises:
        PassStopped: `is_stopped` returned True.
    """
    chat = context.chat
    neutral, num_asked = chat.question(_NEUTRAL), len(chat.question(question))
    if max(len(ids), len(neutral)) > context.pot.num_free:
        return None
    given = queries_of(context, context.decoder.ids(ids), is_stopped)
    if not context.usual_queries:  # no question changes them
        context.usual_queries = queries_of(context, context.decoder.ids(neutral), is_stopped)
    weights = torch.zeros(context.num_positions, dtype=torch.float64)
    for layer in _layers(context, len(given)):
        keys, sizes, origin = _keys(context, layer)
        paid = _attention(context, layer, given[layer][:, :, -num_asked:], keys, sizes)
        usual = _attention(context, layer, context.usual_queries[layer], keys, sizes)
        beyond = (paid - usual).clamp_min(0).sum(0).cpu().double() / sizes.cpu()
        weights.index_add_(0, origin, beyond.repeat_interleave(sizes.cpu()))
    return weights.numpy()


def _layers(context: Context, of_pot: int) -> Sequence[int]:
    """The second half; of a model with sliding windows those that see everything."""
    parts, per_layer = context.decoder.parts, context.pot.shape.pot_layers_per_layer
    later = range(of_pot // 2, of_pot)
    return [layer for layer in later if parts.layers[layer // per_layer].sliding_window is None] or later


def _attention(context: Context, layer: int, queries: Tensor, keys: Tensor, sizes: Tensor) -> Tensor:
    """The mean attention of queries (1, heads, n, dim) to each key, by KV head (kv_heads, num_keys).

    Args:
        sizes: (num_keys,) tokens that each key stands for.
    """
    num_heads, parts, per_layer = queries.shape[1], context.decoder.parts, context.pot.shape.pot_layers_per_layer
    sinks = parts.layers[layer // per_layer].sinks_of(layer, per_layer)
    mass = torch.zeros(keys.shape[1:3], device=keys.device)
    for some in queries.to(keys.device).float().split(max(_MAX_SCORES // (num_heads * keys.shape[2]), 1), 2):
        mask = sizes.log().expand(1, 1, some.shape[2], -1)
        paid = attention_mass(some, keys, scale=parts.scale, mask=mask, softcap=parts.attention_softcap, sinks=sinks)
        mass += paid[0]
    return mass * keys.shape[1] / (num_heads * queries.shape[2])


def queries_of(context: Context, ids: Tensor, is_stopped: Callable[[], bool] | None) -> Sequence[Tensor]:
    """Queries of ids (1, n) in each layer, (1, heads, n, dim) before RoPE; the pot stays as it is."""
    with context.pot.savepoint():
        return context.decoder.forward(ids, context.pot, keeps_queries=True, is_stopped=is_stopped).queries


def _keys(context: Context, layer: int) -> tuple[Tensor, Tensor, Tensor]:
    """Keys of the document before RoPE (1, kv_heads, m, dim), how many tokens each stands for (m,), and those
    tokens, (n,) int64 on the CPU.

    The host tier gives mean keys of its units. It lacks what the last passes stored, which every head of the pot holds.
    """
    pot, tier = context.pot, None if context.host is None else context.host.tier
    held = torch.empty(0, dtype=torch.int64) if tier is None else tier.origin(layer).long()
    first, used = pot.num_ranked[layer] if held.numel() else 0, pot.num_cached[layer]
    origin = pot.origin[layer, 0, 0, first:used].cpu().long()
    here = (origin > (int(held[-1]) if held.numel() else -1)).nonzero().squeeze(1)  # the tier's tokens rise
    keys = pot.slots.keys_at(layer, slice(first, used)).float()
    keys = keys[:, :, here.to(keys.device)]
    sizes = torch.ones(here.numel(), dtype=torch.int64, device=keys.device)
    if tier is None or not held.numel():
        return keys, sizes, origin[here]
    means = tier.unit_keys(layer, device=keys.device)[None].float()
    in_units = torch.full((means.shape[2],), UNIT_ROWS, device=keys.device)
    in_units[-1] -= UNIT_ROWS * means.shape[2] - held.numel()
    return torch.cat((means, keys), 2), torch.cat((in_units, sizes)), torch.cat((held, origin[here]))
