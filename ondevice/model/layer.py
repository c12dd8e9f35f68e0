"""The parts of one layer around its attention, for any number of tokens."""

from __future__ import annotations

import torch
from torch import Tensor

from ondevice.kernels.rope import rotate
from ondevice.model.families import LayerParts, ModelParts


def heads(parts: ModelParts, layer: LayerParts, hidden: Tensor) -> tuple[Tensor, Tensor]:
    """Hidden states -> queries and keys before RoPE in one tensor, and values; each (batch, heads, n, head_dim)."""
    batch, num_tokens, _ = hidden.shape
    num_heads, num_kv_heads = parts.num_heads, parts.num_kv_heads
    qkv = layer.qkv(layer.input_norm(hidden)).view(batch, num_tokens, -1, parts.head_dim).transpose(1, 2)
    query_keys, values = qkv.split((num_heads + num_kv_heads, num_kv_heads), dim=1)
    if layer.q_norm is not None and layer.k_norm is not None:
        query, keys = query_keys.split((num_heads, num_kv_heads), dim=1)
        query_keys = torch.cat((layer.q_norm(query), layer.k_norm(keys)), dim=1)
    return query_keys, values


def project_heads(
    parts: ModelParts,
    layer: LayerParts,
    hidden: Tensor,
    cos: Tensor,
    sin: Tensor,
    queries: list[Tensor] | None = None,
) -> tuple[Tensor, ...]:
    """Hidden states -> query after RoPE, keys before and after RoPE, values; each (batch, heads, n, head_dim).

    `queries` takes in the query before RoPE.
    """
    query_keys, values = heads(parts, layer, hidden)
    if queries is not None:
        queries.append(query_keys[:, : parts.num_heads])
    query, rotated = rotate(query_keys, cos, sin).split((parts.num_heads, parts.num_kv_heads), dim=1)
    return query, query_keys[:, parts.num_heads :], rotated, values


def finish(layer: LayerParts, hidden: Tensor, out: Tensor) -> Tensor:
    """What comes behind the attention of a layer, (batch, n, hidden_size)."""
    return feed_forward(layer, after_attention(layer, hidden, out))


def after_attention(layer: LayerParts, hidden: Tensor, out: Tensor) -> Tensor:
    """Output projection of (batch, heads, n, head_dim), with its residual."""
    out = layer.out(out.transpose(1, 2).flatten(2))
    if layer.post_attention_norm is not None:
        out = layer.post_attention_norm(out)
    return out.add_(hidden)


def feed_forward(layer: LayerParts, hidden: Tensor) -> Tensor:
    """Feed-forward network with its residual."""
    gate, up = layer.gate_up(layer.mlp_norm(hidden)).chunk(2, dim=-1)
    out = layer.down(layer.activation(gate).mul_(up))
    if layer.post_mlp_norm is not None:
        out = layer.post_mlp_norm(out)
    return out.add_(hidden)
