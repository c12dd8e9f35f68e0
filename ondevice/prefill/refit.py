"""Values refit at a distillation, so that what is kept answers late queries as all tokens did before: the value step of
Attention Matching (arXiv 2602.16284), inside a pot.

Queries of the last pass are asked again as if they came next, once before and once after slots are given up. The kept
values then move, as little as it takes, towards what gives the attention output that was there before. The paper also
fits a bias of each key; a pot has no room for one.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import torch
from torch import Tensor

from ondevice.context import Context
from ondevice.pot.memory_pot import MemoryPot
from ondevice.pot.positive import NotSolved, solve_positive

_QUERIES = 64  # of each query head, evenly over the pass
_RIDGE = 1.0  # of the mean of the diagonal of what is inverted


@torch.inference_mode()
def outputs(context: Context, queries: Sequence[Tensor]) -> list[Tensor]:
    """Answers to the queries (batch, num_heads, n, head_dim) before RoPE of each layer of the pot:
    (batch, num_kv_heads, group * n, head_dim) float32."""
    pot = context.pot
    found = []
    for layer, own in enumerate(queries):
        share = _attention(context, layer, own)
        found.append(share @ pot.slots.values_at(layer, slice(0, pot.num_cached[layer])).float())
    return found


@torch.inference_mode()
def refit_values(context: Context, queries: Sequence[Tensor], wanted: Sequence[Tensor]) -> None:
    """Change the values that are left so that the same queries are answered as `outputs` said before.

    Ridge regression of the change: with fewer queries than slots there are many ways, and the smallest is taken. What
    is protected stays as it is, and so does a layer with numbers that are not finite.
    """
    pot = context.pot
    for layer, (own, target) in enumerate(zip(queries, wanted, strict=True)):
        slots = slice(0, pot.num_cached[layer])
        values, share = pot.slots.values_at(layer, slots).float(), _attention(context, layer, own)
        missing = target - share @ values
        is_open = pot.slots.to_layer_device(pot.positions[layer, ..., slots] >= context.num_protected, layer)
        share = share * is_open[..., None, :]
        products = share @ share.transpose(-1, -2)
        diagonal = products.diagonal(dim1=-2, dim2=-1)
        ridge = _RIDGE * diagonal.mean(dim=-1, keepdim=True).clamp_min(1e-12)
        products.diagonal(dim1=-2, dim2=-1).add_(ridge)
        with suppress(NotSolved):
            weights = solve_positive(products, missing).float()
            _write_values(pot, layer, slots, values + share.transpose(-1, -2) @ weights)


def _write_values(pot: MemoryPot, layer: int, slots: slice, values: Tensor) -> None:
    dtype = pot.values[layer].dtype if pot.values else values.dtype
    parts = pot.slots.parts_of(layer, pot.slots.keys_at(layer, slots), values.to(dtype))
    for name, buffer, part in zip(pot.slots.names, pot.slots.layers[layer], parts, strict=False):
        if name.startswith("value"):
            buffer[:, :, slots] = part


def _attention(context: Context, layer: int, queries: Tensor) -> Tensor:
    """The attention (batch, num_kv_heads, group * n, num_cached) float32 of some of the queries to all slots."""
    pot, decoder = context.pot, context.decoder
    step = max(queries.shape[2] // _QUERIES, 1)
    some = pot.slots.to_layer_device(queries[:, :, ::step], layer)
    first = pot.next_position[layer]
    ahead = torch.arange(first, first + some.shape[2], dtype=torch.int32, device=some.device)
    some = decoder.rotate_keys(some, ahead.expand(*some.shape[:2], -1), pot.max_positions, first + some.shape[2])
    keys = decoder.seen_keys(pot, layer, first)
    folded = some.reshape(some.shape[0], keys.shape[1], -1, some.shape[-1]).float()
    return (decoder.parts.scale * folded @ keys.float().transpose(-1, -2)).softmax(dim=-1)
