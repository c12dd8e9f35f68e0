"""Adapter of Gemma 4: larger heads where a layer attends to all, keys that serve later layers, embeddings by layer."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ondevice.errors import ModelError
from ondevice.kernels.norm import RMSNorm
from ondevice.model.families.common import activation_of, heads, llama_halves, window_of
from ondevice.model.families.fusing import fuse, linear_of, norm_of
from ondevice.model.families.parts import BY_KIND, AttentionLayer, SharingLayer, Tail


def gemma4_layers(model: Any) -> list[AttentionLayer]:
    """The layers of a Gemma 4; the last ones have no keys of their own, but those of the last one of their kind.

    Raises:
        ModelError: it has experts.
    """
    config, body, layers = model.config, model.model, list[AttentionLayer]()
    if getattr(config, "enable_moe_block", False):
        raise ModelError("A Gemma 4 with experts is not supported", fix="Use a dense Gemma 4: E2B, E4B, 12B or 31B.")
    turns = {kind: partial(body.rotary_emb, layer_type=kind) for kind in BY_KIND}
    sources = dict[str, int]()  # the last layer of each kind with keys of its own
    for index, (kind, layer) in enumerate(zip(config.layer_types, body.layers, strict=True)):
        attn, activation = layer.self_attn, activation_of(config, layer.mlp.act_fn)
        own = {
            **llama_halves(layer, config),
            **heads(attn, config.per_layer_config[index], turns[kind]),
            "intermediate_size": layer.mlp.gate_proj.out_features,
            "mlp_norm": norm_of(layer.pre_feedforward_layernorm),
            "post_attention_norm": norm_of(layer.post_attention_layernorm),
            "post_mlp_norm": norm_of(layer.post_feedforward_layernorm),
            "tail": _tail(layer, config, activation),
            "out": linear_of(attn.o_proj),
            "q_norm": norm_of(attn.q_norm),
            "sliding_window": window_of(config, index),
        }
        if attn.is_kv_shared_layer:
            layers.append(SharingLayer(**own, qkv=linear_of(attn.q_proj), source=sources[kind]))
            continue
        sources[kind] = index
        k_norm = norm_of(attn.k_norm)
        own |= {
            "qkv": fuse([one for one in (attn.q_proj, attn.k_proj, attn.v_proj) if one is not None]),
            "keys_are_values": attn.v_proj is None,
            "k_norm": k_norm,
            "v_norm": RMSNorm(torch.ones_like(k_norm.weight), k_norm.eps),
        }
        layers.append(BY_KIND[kind](**own))
    return layers


def gemma4_embeddings(model: Any) -> Callable[[Tensor, Tensor], Tensor] | None:
    """`ModelParts.own_embeddings` of a Gemma 4; None: it has none."""
    config, body = model.config, model.model
    if not _size_of_own(config):
        return None
    table, project = body.embed_tokens_per_layer, linear_of(body.per_layer_model_projection)
    norm = norm_of(body.per_layer_projection_norm)
    sizes, scale = (config.num_hidden_layers, _size_of_own(config)), config.hidden_size**-0.5

    def embeddings(ids: Tensor, embedded: Tensor) -> Tensor:
        context = norm((project(embedded) * scale).unflatten(-1, sizes))
        return (context + table(ids).unflatten(-1, sizes)) * 2**-0.5

    return embeddings


def _size_of_own(config: Any) -> int:
    """Numbers of the embedding that a token has for each layer; 0: it has none."""
    return getattr(config, "hidden_size_per_layer_input", 0)


def _tail(layer: Any, config: Any, activation: Callable[[Tensor], Tensor]) -> Tail:
    if not _size_of_own(config):
        return Tail(layer.layer_scalar.detach(), activation)
    return Tail(
        layer.layer_scalar.detach(),
        activation,
        linear_of(layer.per_layer_input_gate),
        linear_of(layer.per_layer_projection),
        norm_of(layer.post_per_layer_input_norm),
    )
