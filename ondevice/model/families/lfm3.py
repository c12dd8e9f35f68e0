"""Adapter of LFM3: short convolutions, windows and full attention, which gates each head, and norms around halves."""

from __future__ import annotations

from functools import partial
from typing import Any

from torch import Tensor

from ondevice.model.families.common import attention, window_of
from ondevice.model.families.fusing import linear_of, norm_of
from ondevice.model.families.lfm2 import conv_layer, lfm2_halves
from ondevice.model.families.parts import AttentionLayer, Layer, WindowLayer

_KINDS = {"sliding_attention": WindowLayer, "full_attention": AttentionLayer}


def lfm3_layers(model: Any) -> list[Layer]:
    """The layers of an LFM3."""
    config, body = model.config, model.model
    turns, layers = {kind: partial(_turn, body.rotary_emb, kind) for kind in _KINDS}, list[Layer]()
    for index, (kind, layer) in enumerate(zip(config.layer_types, body.layers, strict=True)):
        halves = lfm2_halves(layer)
        if config.use_sandwich_norm:
            halves |= {"post_attention_norm": norm_of(layer.post_operator_norm)}
            halves |= {"post_mlp_norm": norm_of(layer.post_ffn_norm)}
        if kind == "conv":
            layers.append(conv_layer(layer, config, halves))
            continue
        attn = layer.self_attn
        gate = linear_of(attn.g_proj) if config.use_attention_gate else None
        own = attention(attn, config, turns[kind]) | {"sliding_window": window_of(config, index), "head_gate": gate}
        layers.append(_KINDS[kind](**halves, **own))
    return layers


def _turn(rotary: Any, kind: str, states: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
    """Its module gives float32, whatever the type of the states."""
    cos, sin = rotary(states, positions, layer_type=kind)
    return cos.to(states.dtype), sin.to(states.dtype)
