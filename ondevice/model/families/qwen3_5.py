"""Adapter of the dense Qwen3.5 to 3.8: three layers with a gated delta rule, then one of attention with a gate.

The delta rule is transformers' own; only the state that its module asks for lies with us.
"""

from __future__ import annotations

from typing import Any

import torch

from ondevice.model.families.common import attention, llama_halves, mixer_of
from ondevice.model.families.parts import AttentionLayer, Layer, RecurrentLayer


def qwen3_5_layers(model: Any) -> list[Layer]:
    """The layers of a Qwen3.5."""
    config, body = model.config, model.model
    layers = list[Layer]()
    for kind, layer in zip(config.layer_types, body.layers, strict=True):
        halves = llama_halves(layer, config, is_centred=True)
        if kind == "full_attention":
            own = attention(layer.self_attn, config, body.rotary_emb, is_centred=True)
            layers.append(AttentionLayer(**halves, **own, is_gated=True))
            continue
        delta = layer.linear_attn
        sizes = {
            "conv": (None, (delta.conv_dim, delta.conv_kernel_size)),
            "recurrent": (torch.float32, (delta.num_v_heads, delta.head_k_dim, delta.head_v_dim)),
        }
        layers.append(RecurrentLayer(**halves, mix=mixer_of(delta, "cache_params"), sizes=sizes))
    return layers
