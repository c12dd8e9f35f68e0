"""The parts of one layer around its attention, for any number of tokens."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ondevice.kernels.attention import additive_mask
from ondevice.kernels.gated import gated
from ondevice.kernels.norm import RMSNorm, add_norm_
from ondevice.kernels.rope import rotate
from ondevice.model.families.parts import AttentionLayer, Layer, SharingLayer

# What a feed-forward network may hold between its products. On a CPU malloc keeps pieces of less than 32 MB at hand;
# larger ones it takes from the system each time, page by page, which took a fifth of the reading of a 1.5B model.
_CPU_PIECE, _GPU_PIECE = 24 << 20, 256 << 20
_STEP = 128  # tokens; products with fewer are slower


def heads(layer: AttentionLayer, normed: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
    """Hidden states after the layer's input norm -> queries and keys before RoPE in one tensor, values, and the gate of
    the output before its sigmoid, None where it has none; each (batch, heads, n, dim), a gate perhaps 1 wide."""
    batch, num_tokens, _ = normed.shape
    num_heads, num_kv_heads, gate = layer.num_heads, layer.num_kv_heads, None
    qkv = layer.qkv(normed).view(batch, num_tokens, -1, layer.head_dim).transpose(1, 2)
    if layer.is_gated:  # the rows of each head are its query, then its gate
        gated_query, keys, values = qkv.split((2 * num_heads, num_kv_heads, num_kv_heads), dim=1)
        query, gate = gated_query[:, ::2], gated_query[:, 1::2]
        query_keys = torch.cat((query, keys), dim=1)
    elif layer.keys_are_values:
        query_keys, values = qkv, qkv[:, num_heads:]
    else:
        query_keys, values = qkv.split((num_heads + num_kv_heads, num_kv_heads), dim=1)
    if layer.head_gate is not None:
        gate = layer.head_gate(normed).transpose(1, 2).unsqueeze(-1)
    if layer.q_norm is not None and layer.k_norm is not None:
        query, keys = layer.apart(query_keys)
        query_keys = torch.cat((layer.q_norm(query), layer.k_norm(keys)), dim=1)
    return query_keys, values if layer.v_norm is None else layer.v_norm(values), gate


def queries(layer: SharingLayer, normed: Tensor) -> Tensor:
    """Hidden states after the layer's input norm -> queries before RoPE, (batch, heads, n, dim)."""
    query = layer.qkv(normed).unflatten(-1, (layer.num_heads, layer.head_dim)).transpose(1, 2)
    return query if layer.q_norm is None else layer.q_norm(query)


class Heads(NamedTuple):
    """Queries and keys before and after RoPE, and values; each (batch, heads, n, dim).

    `gate` is of queries, before its sigmoid; None: what they attend to goes on as it is.
    """

    query: Tensor
    rotated_query: Tensor
    keys: Tensor
    rotated_keys: Tensor
    values: Tensor
    gate: Tensor | None = None

    def split(self, pot_layers_per_layer: int) -> list[Heads]:
        """Queries with the KV heads that they belong to, in so many parts."""
        if pot_layers_per_layer == 1:
            return [self]
        some = (part.chunk(pot_layers_per_layer, dim=1) for part in self if part is not None)
        return [Heads(*part) for part in zip(*some, strict=True)]


def project_heads(layer: AttentionLayer, normed: Tensor, cos: Tensor, sin: Tensor) -> Heads:
    """Projection and RoPE of hidden states (batch, n, hidden_size) after the layer's input norm."""
    query_keys, values, gate = heads(layer, normed)
    query, keys = layer.apart(query_keys)
    rotated_query, rotated_keys = layer.apart(rotate(query_keys, cos, sin))
    return Heads(query, rotated_query, keys, rotated_keys, values, gate)


def position_mask(at: Tensor, slots: Tensor, window: int | None, dtype: torch.dtype) -> Tensor:
    """Additive mask of tokens at positions `at` (..., n) to slots (batch, kv_heads, m): each sees those up to its
    own position, in a window only the last so many."""
    distance = at[..., None] - slots[:, :, None]
    is_seen = distance >= 0
    return additive_mask(is_seen if window is None else is_seen & (distance < window), dtype)


def finish(
    layer: AttentionLayer, hidden: Tensor, out: Tensor, norm: RMSNorm, own: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Finish a layer after its attention: what it gives, (batch, n, hidden_size), and the `norm` of that."""
    return feed_forward(layer, *after_attention(layer, hidden, out), norm, own)


def after_attention(layer: AttentionLayer, hidden: Tensor, out: Tensor) -> tuple[Tensor, Tensor]:
    """Output projection of (batch, heads, n, dim), with its residual, and what the feed-forward network takes."""
    return after_mixing(layer, hidden, layer.out(out.transpose(1, 2).flatten(2)))


def after_mixing(layer: Layer, hidden: Tensor, out: Tensor) -> tuple[Tensor, Tensor]:
    """The residual of a layer with its mixed tokens (batch, n, hidden_size), and the feed-forward network's input."""
    out = _scaled(layer, out)
    return add_norm_(out, hidden, layer.mlp_norm, layer.post_attention_norm)


def feed_forward(
    layer: Layer, hidden: Tensor, normed: Tensor, norm: RMSNorm, own: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Feed-forward network with its residual and the layer's tail, of (batch, n, hidden_size) and that after the
    network's norm; and the `norm` of what it gives. `own` are the tokens' embeddings for a tail."""
    size = tokens_at_once(hidden.shape[0] * layer.intermediate_size, hidden.dtype, hidden.device.type)
    pieces = [_network(layer, some) for some in normed.split(size, dim=1)]
    out = _scaled(layer, pieces[0] if len(pieces) == 1 else torch.cat(pieces, dim=1))
    if layer.tail is None:
        return add_norm_(out, hidden, norm, layer.post_mlp_norm)
    hidden = layer.tail(hidden + (out if layer.post_mlp_norm is None else layer.post_mlp_norm(out)), own)
    return hidden, norm(hidden)


def _network(layer: Layer, some: Tensor) -> Tensor:
    """The feed-forward network of a layer, its experts, or the sum of both."""
    if layer.gate_up is None or layer.down is None:
        assert layer.experts is not None
        return layer.experts(some)
    out = layer.down(gated(layer.gate_up(some), layer.activation))
    return out if layer.experts is None else out.add_(layer.experts(some))


def _scaled(layer: Layer, out: Tensor) -> Tensor:
    return out if layer.residual_scale == 1.0 else out.mul_(layer.residual_scale)


def tokens_at_once(intermediate_size: int, dtype: torch.dtype, device: str) -> int:
    """Tokens whose intermediate states a feed-forward network holds at once on a kind of device, "cpu" or "cuda"."""
    budget = _CPU_PIECE if device == "cpu" else _GPU_PIECE
    return max(budget // (2 * intermediate_size * dtype.itemsize) // _STEP, 1) * _STEP
