"""Adapter of Gemma-2 and Gemma 3: norms around both halves of a layer, windows in most or in every other one."""

from __future__ import annotations

from functools import partial
from typing import Any

from ondevice.model.families.common import attention, llama_halves, window_of
from ondevice.model.families.fusing import norm_of
from ondevice.model.families.parts import AttentionLayer, WindowLayer


def gemma2_layers(model: Any) -> list[AttentionLayer]:
    """The layers of a Gemma-2; the windowed ones have slots in the pot as the others."""
    config, body = model.config, model.model
    return [
        AttentionLayer(
            **_halves(layer, config),
            **attention(layer.self_attn, config, body.rotary_emb),
            sliding_window=window_of(config, index),
        )
        for index, layer in enumerate(body.layers)
    ]


def gemma3_layers(model: Any) -> list[AttentionLayer]:
    """The layers of a Gemma 3: five of six keep a window of their own, and turn faster than the sixth."""
    config, body = model.config, model.model
    kinds = {"sliding_attention": WindowLayer, "full_attention": AttentionLayer}
    turns = {kind: partial(body.rotary_emb, layer_type=kind) for kind in kinds}
    return [
        kinds[kind](
            **_halves(layer, config),
            **attention(layer.self_attn, config, turns[kind], is_centred=True),
            sliding_window=window_of(config, index),
        )
        for index, (kind, layer) in enumerate(zip(config.layer_types, body.layers, strict=True))
    ]


def _halves(layer: Any, config: Any) -> dict[str, Any]:
    return llama_halves(layer, config, is_centred=True) | {
        "mlp_norm": norm_of(layer.pre_feedforward_layernorm, is_centred=True),
        "post_attention_norm": norm_of(layer.post_attention_layernorm, is_centred=True),
        "post_mlp_norm": norm_of(layer.post_feedforward_layernorm, is_centred=True),
    }
