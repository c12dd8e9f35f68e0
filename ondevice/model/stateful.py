"""Layers that have no slots: each mixes the tokens of a pass with the state that it keeps of those before."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ondevice.kernels.attention import attention
from ondevice.kernels.rope import rotate
from ondevice.model.families.parts import AttentionLayer, Layer, RecurrentLayer, SharingLayer, WindowLayer
from ondevice.model.layer import heads, position_mask, queries
from ondevice.model.rotary import Rotary
from ondevice.pot.native_state import NativeState

_QUERIES = 512  # at once: each of them needs a row of the mask


class Window(NamedTuple):
    """Keys and values that the tokens of a pass see in a window: those held before it, then their own.

    Attributes:
        keys, values: (batch, kv_heads, num_held + n, dim), keys after RoPE.
        cos, sin: (num_held + n, rotary_dim). Positions count from the oldest token held: only distances matter.
        num_held: tokens before the pass.
    """

    keys: Tensor
    values: Tensor
    cos: Tensor
    sin: Tensor
    num_held: int


def mix(
    layer: Layer,
    normed: Tensor,
    native: NativeState,
    index: int,
    num_transient: int,
    rope: Rotary | None,
    windows: dict[int, Window],
) -> Tensor:
    """Mix the tokens of a pass with the state of a layer: (batch, n, hidden_size), before the residual.

    Args:
        normed: (batch, n, hidden_size) after the layer's input norm.
        native: keeps the state after the tokens that stay, until it is committed.
        index: of the layer, among all.
        num_transient: last tokens that leave no trace.
        rope: of a layer of attention.
        windows: of the layers before, by number, which later ones may share; this layer's comes to them.
    """
    if isinstance(layer, SharingLayer):
        return _attend(layer, queries(layer, normed), windows[layer.source], None)
    state, num_staying = native.of(index), normed.shape[1] - num_transient
    if isinstance(layer, WindowLayer):
        assert rope is not None
        query_keys, new_values, gate = heads(layer, normed)
        query, new_keys = layer.apart(query_keys)
        size = state[0].shape[2]
        num_held = min(native.num_seen, size)
        whole = [torch.cat(pair, dim=2) for pair in zip(state, (new_keys, new_values), strict=True)]
        native.append_(index, [one[:, :, num_staying : num_staying + size] for one in whole])
        keys, values = (one[:, :, size - num_held :] for one in whole)
        used = keys.shape[2]
        cos, sin = (table[:used].to(keys.device) for table in rope.table(used, used))
        windows[index] = Window(rotate(keys, cos, sin), values, cos, sin, num_held)
        return _attend(layer, query, windows[index], gate)
    assert isinstance(layer, RecurrentLayer)
    new, outs = state, list[Tensor]()
    if num_staying:
        out, new = layer.mix(normed[:, :num_staying], state)
        outs.append(out)
    native.append_(index, new)
    if num_transient:
        outs.append(layer.mix(normed[:, num_staying:], new)[0])
    return outs[0] if len(outs) == 1 else torch.cat(outs, dim=1)


def _attend(layer: AttentionLayer, query: Tensor, seen: Window, gate: Tensor | None) -> Tensor:
    """Attention of queries before RoPE to a window, with its gate and the output's projection."""
    window, num_held, used = layer.sliding_window, seen.num_held, seen.keys.shape[2]
    assert window is not None
    query = rotate(query, seen.cos[num_held:], seen.sin[num_held:])
    at, outs = torch.arange(used, device=query.device), list[Tensor]()
    for start in range(num_held, used, _QUERIES):
        stop = min(start + _QUERIES, used)
        first = max(start - window + 1, 0)
        is_all = stop - first <= window
        mask = None if is_all else position_mask(at[start:stop], at[None, None, first:stop], window, query.dtype)
        some = query[:, :, start - num_held : stop - num_held]
        outs.append(
            attention(
                some,
                seen.keys[:, :, first:stop],
                seen.values[:, :, first:stop],
                mask=mask,
                scale=layer.scale,
                softcap=layer.softcap,
                sinks=layer.sinks,
            )
        )
    out = outs[0] if len(outs) == 1 else torch.cat(outs, dim=2)
    if gate is not None:
        out = out * gate.sigmoid()
    return layer.out(out.transpose(1, 2).flatten(2))
