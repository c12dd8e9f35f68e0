"""Adapter of LFM2 and LFM2.5: gated short convolutions, and attention in every few layers."""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F

from ondevice.model.families.common import heads, mixer_of
from ondevice.model.families.fusing import fuse, linear_of, norm_of
from ondevice.model.families.parts import AttentionLayer, ConvLayer, Layer


def lfm2_layers(model: Any) -> list[Layer]:
    """The layers of an LFM2."""
    config, body = model.config, model.model
    layers = list[Layer]()
    for layer in body.layers:
        halves = lfm2_halves(layer)
        if not layer.is_attention_layer:
            layers.append(conv_layer(layer, config, halves))
            continue
        attn = layer.self_attn
        layers.append(
            AttentionLayer(
                qkv=fuse([attn.q_proj, attn.k_proj, attn.v_proj]),
                out=linear_of(attn.out_proj),
                q_norm=norm_of(attn.q_layernorm),
                k_norm=norm_of(attn.k_layernorm),
                **heads(attn, config, body.rotary_emb),
                **halves,
            )
        )
    return layers


def conv_layer(layer: Any, config: Any, halves: dict[str, Any]) -> ConvLayer:
    """A layer with a gated short convolution."""
    sizes = {"conv": (None, (config.hidden_size, config.conv_L_cache))}
    return ConvLayer(**halves, mix=mixer_of(layer.conv, "past_key_values"), sizes=sizes)


def lfm2_halves(layer: Any) -> dict[str, Any]:
    """Norms before both halves of a layer, and its feed-forward network."""
    mlp = layer.feed_forward
    return {
        "input_norm": norm_of(layer.operator_norm),
        "mlp_norm": norm_of(layer.ffn_norm),
        "gate_up": fuse([mlp.w1, mlp.w3]),
        "intermediate_size": mlp.w1.out_features,
        "activation": F.silu,
        "down": linear_of(mlp.w2),
    }
