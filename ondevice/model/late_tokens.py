"""Tokens that pruning dropped, read late from their hidden states on, at their place in the document."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ondevice.kernels.attention import attention
from ondevice.model.decoder import Decoder
from ondevice.model.families.parts import AttentionLayer
from ondevice.model.layer import feed_forward, finish, heads, position_mask
from ondevice.pot.host.hidden_tier import DroppedStates
from ondevice.pot.memory_pot import MemoryPot, NewTokens
from ondevice.pot.numbering import number_by_origin_


@torch.inference_mode()
def read_on(decoder: Decoder, dropped: Sequence[DroppedStates], pot: MemoryPot) -> None:
    """Run tokens through the layers after the ones that dropped them, and store their keys and values there.

    They attend to each other and to what the pot holds before them in document order. In those layers positions are
    ranks in document order afterwards.

    Args:
        dropped: the shallowest layer first, `tokens` of the document (n,) int32.
        pot: batch 1, with room for all of them in the deeper layers.
    """
    parts, waiting = decoder.parts, list(dropped)
    hidden = normed = torch.empty(1, 0, parts.hidden_size, dtype=decoder.dtype, device=decoder.device)
    tokens = torch.empty(0, dtype=torch.int32, device=decoder.device)
    for index in range(waiting[0].layer, len(parts.layers)):
        layer, norm = parts.layers[index], parts.norm_after(index)
        if tokens.numel():
            hidden, normed = finish(layer, hidden, _attend(decoder, index, normed, tokens, pot), norm)
        while waiting and waiting[0].layer == index:
            more = waiting.pop(0)
            states = more.states[None].to(hidden)
            both = zip((hidden, normed), feed_forward(layer, states, layer.mlp_norm(states), norm), strict=True)
            hidden, normed = (torch.cat(some, dim=1) for some in both)
            tokens = torch.cat((tokens, more.tokens.to(tokens)))


def _attend(decoder: Decoder, index: int, normed: Tensor, tokens: Tensor, pot: MemoryPot) -> Tensor:
    """Store document tokens (n,) in one layer, each at its rank in the head, and attend from there."""
    layer, own = decoder.parts.layers[index], pot.shape.parts_of(index)
    query_keys, values, _ = heads(layer, normed)
    query, keys = layer.apart(query_keys)
    for number, *both in zip(own, *(some.chunk(len(own), dim=1) for some in (keys, values)), strict=True):
        new = zip(*(part[0] for part in pot.slots.parts_of(number, *both)), strict=True)
        num_used = pot.num_cached[number] + tokens.shape[0]
        pot.insert_last_(number, num_used, [NewTokens(list(head), tokens) for head in new])
    number_by_origin_(pot, slice(own.start, own.stop))
    outs = [
        _attend_late(decoder, number, layer, part, tokens.shape[0], pot)
        for number, part in zip(own, query.chunk(len(own), dim=1), strict=True)
    ]
    return torch.cat(outs, dim=1)


def _attend_late(
    decoder: Decoder, number: int, layer: AttentionLayer, query: Tensor, count: int, pot: MemoryPot
) -> Tensor:
    """Attention of the last `count` tokens of one layer of the pot, each from its own position."""
    used, most = pot.num_cached[number], pot.max_positions
    slots = pot.positions[number, :, :, :used]
    mine = slots[..., used - count :]
    # Query heads that share keys share the places of those, too.
    folded = query.reshape(*slots.shape[:2], -1, query.shape[3])
    places = mine.repeat(1, 1, query.shape[1] // slots.shape[1])
    if layer.query_scale is not None:
        folded = folded * layer.query_scale(places)[..., None].to(folded.dtype)
    query = decoder.rotate_keys(folded, places, most, rope=pot.shape.rope_of(number)).view(query.shape)
    return attention(
        query,
        decoder.seen_keys(pot, number),
        pot.slots.values_at(number, slice(0, used)),
        mask=position_mask(mine, slots, layer.sliding_window, decoder.dtype),
        scale=layer.scale,
        softcap=layer.softcap,
        sinks=layer.sinks_of(number, pot.shape.pot_layers_per_layer),
    )
