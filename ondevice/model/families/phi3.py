"""Adapter of Phi-3 to Phi-4-mini: projections that are fused in the checkpoint already."""

from __future__ import annotations

from typing import Any

from ondevice.model.families.common import activation_of, heads, window_of
from ondevice.model.families.fusing import linear_of, norm_of
from ondevice.model.families.parts import AttentionLayer


def phi3_layers(model: Any) -> list[AttentionLayer]:
    """The layers of a Phi-3."""
    config, body = model.config, model.model
    return [
        AttentionLayer(
            input_norm=norm_of(layer.input_layernorm),
            qkv=linear_of(layer.self_attn.qkv_proj),
            out=linear_of(layer.self_attn.o_proj),
            mlp_norm=norm_of(layer.post_attention_layernorm),
            gate_up=linear_of(layer.mlp.gate_up_proj),
            intermediate_size=config.intermediate_size,
            activation=activation_of(config, layer.mlp.activation_fn),
            down=linear_of(layer.mlp.down_proj),
            sliding_window=window_of(config, index),
            **heads(layer.self_attn, config, body.rotary_emb),
        )
        for index, layer in enumerate(body.layers)
    ]
