"""Layers that have no slots: each mixes the tokens of a pass with the state that it keeps of those before."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ondevice.kernels.attention import additive_mask, attention
from ondevice.kernels.rope import rotate
from ondevice.model.families.parts import Layer, RecurrentLayer, WindowLayer
from ondevice.model.layer import heads
from ondevice.model.rotary import Rotary
from ondevice.pot.native_state import NativeState

_QUERIES = 512  # at once: each of them needs a row of the mask


def mix(
    layer: Layer, normed: Tensor, native: NativeState, index: int, num_transient: int, rope: Rotary | None
) -> Tensor:
    """Mix the tokens of a pass with the state of a layer: (batch, n, hidden_size), before the residual.

    Args:
        normed: (batch, n, hidden_size) after the layer's input norm.
        native: keeps the state after the tokens that stay, until it is committed.
        index: of the layer, among all.
        num_transient: last tokens that leave no trace.
        rope: of a layer of attention.
    """
    state, num_staying = native.of(index), normed.shape[1] - num_transient
    if isinstance(layer, WindowLayer):
        assert rope is not None
        out, kept = _attend(layer, normed, state, native.num_seen, num_staying, rope)
        native.append_(index, kept)
        return out
    assert isinstance(layer, RecurrentLayer)
    new, outs = state, list[Tensor]()
    if num_staying:
        out, new = layer.mix(normed[:, :num_staying], state)
        outs.append(out)
    native.append_(index, new)
    if num_transient:
        outs.append(layer.mix(normed[:, num_staying:], new)[0])
    return outs[0] if len(outs) == 1 else torch.cat(outs, dim=1)


def _attend(
    layer: WindowLayer, normed: Tensor, state: Sequence[Tensor], num_seen: int, num_staying: int, rope: Rotary
) -> tuple[Tensor, list[Tensor]]:
    """Attention to the last tokens of the window, and the last ones after the pass.

    Positions count from the oldest token that is still held: only distances matter.
    """
    window, size = layer.sliding_window, state[0].shape[2]
    assert window is not None
    query_keys, new_values, gate = heads(layer, normed)
    query, new_keys = query_keys.split((layer.num_heads, layer.num_kv_heads), dim=1)
    num_held = min(num_seen, size)
    keys, values = (
        torch.cat((held[:, :, size - num_held :], new), dim=2)
        for held, new in zip(state, (new_keys, new_values), strict=True)
    )
    kept = [
        torch.cat((held, new[:, :, :num_staying]), dim=2)[:, :, -size:]
        for held, new in zip(state, (new_keys, new_values), strict=True)
    ]
    used = keys.shape[2]
    cos, sin = (table[:used].to(keys.device) for table in rope.table(used, used))
    query, keys = rotate(query, cos[num_held:], sin[num_held:]), rotate(keys, cos, sin)
    at, outs = torch.arange(used, device=keys.device), list[Tensor]()
    for start in range(num_held, used, _QUERIES):
        stop = min(start + _QUERIES, used)
        first = max(start - window + 1, 0)
        distance = at[start:stop, None] - at[first:stop]
        is_all = stop - first <= window
        mask = None if is_all else additive_mask(((distance >= 0) & (distance < window))[None, None], normed.dtype)
        some = query[:, :, start - num_held : stop - num_held]
        outs.append(
            attention(
                some,
                keys[:, :, first:stop],
                values[:, :, first:stop],
                mask=mask,
                scale=layer.scale,
                softcap=layer.softcap,
            )
        )
    out = outs[0] if len(outs) == 1 else torch.cat(outs, dim=2)
    if gate is not None:
        out = out * gate.sigmoid()
    return layer.out(out.transpose(1, 2).flatten(2)), kept
