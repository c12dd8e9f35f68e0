"""Adapter of Gemma-2 and Gemma 3: norms around both halves of a layer, windows in most or in every other one."""

from __future__ import annotations

from functools import partial
from typing import Any

from ondevice.model.families.common import attention, llama_halves, window_of
from ondevice.model.families.fusing import norm_of
from ondevice.model.families.parts import AttentionLayer, WindowLayer

_KINDS = ("sliding_attention", "full_attention")


def gemma2_layers(model: Any) -> list[AttentionLayer]:
    """The layers of a Gemma-2; the windowed ones have slots in the pot as the others."""
    return _layers(model, dict.fromkeys(_KINDS, AttentionLayer), dict.fromkeys(_KINDS, model.model.rotary_emb))


def gemma3_layers(model: Any) -> list[AttentionLayer]:
    """The layers of a Gemma 3: five of six keep a window of their own, and turn faster than the sixth."""
    turns = {kind: partial(model.model.rotary_emb, layer_type=kind) for kind in _KINDS}
    return _layers(model, {"sliding_attention": WindowLayer, "full_attention": AttentionLayer}, turns)


def _layers(model: Any, kinds: dict[str, type[AttentionLayer]], turns: dict[str, Any]) -> list[AttentionLayer]:
    config, layers = model.config, list[AttentionLayer]()
    for index, (kind, layer) in enumerate(zip(config.layer_types, model.model.layers, strict=True)):
        halves = llama_halves(layer, config, is_centred=True) | {
            "mlp_norm": norm_of(layer.pre_feedforward_layernorm, is_centred=True),
            "post_attention_norm": norm_of(layer.post_attention_layernorm, is_centred=True),
            "post_mlp_norm": norm_of(layer.post_feedforward_layernorm, is_centred=True),
        }
        own = attention(layer.self_attn, config, turns[kind], is_centred=True)
        layers.append(kinds[kind](**halves, **own, sliding_window=window_of(config, index)))
    return layers
