"""Adapter of LFM2, LFM2.5 and LFM3: gated short convolutions, and attention in every few layers.

LFM3 has windows, too, gates the heads of its attention, and norms around both halves of a layer.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ondevice.model.families.common import attention, heads, short_convolution, window_of
from ondevice.model.families.fusing import fuse, linear_of, norm_of
from ondevice.model.families.parts import BY_KIND, AttentionLayer, Layer, RecurrentLayer


def lfm2_layers(model: Any) -> list[Layer]:
    """The layers of an LFM2."""
    config, body = model.config, model.model
    layers = list[Layer]()
    for layer in body.layers:
        halves = _halves(layer)
        if not layer.is_attention_layer:
            layers.append(_conv_layer(layer, config, halves))
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


def lfm3_layers(model: Any) -> list[Layer]:
    """The layers of an LFM3."""
    config, body = model.config, model.model
    turns, layers = {kind: partial(_turn, body.rotary_emb, kind) for kind in BY_KIND}, list[Layer]()
    for index, (kind, layer) in enumerate(zip(config.layer_types, body.layers, strict=True)):
        halves = _halves(layer)
        if config.use_sandwich_norm:
            halves["post_attention_norm"] = norm_of(layer.post_operator_norm)
            halves["post_mlp_norm"] = norm_of(layer.post_ffn_norm)
        if kind == "conv":
            layers.append(_conv_layer(layer, config, halves))
            continue
        attn = layer.self_attn
        halves |= attention(attn, config, turns[kind]) | {"sliding_window": window_of(config, index)}
        if config.use_attention_gate:
            halves["head_gate"] = linear_of(attn.g_proj)
        layers.append(BY_KIND[kind](**halves))
    return layers


def _turn(rotary: Any, kind: str, states: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
    """LFM3's module gives float32, whatever the type of the states."""
    cos, sin = rotary(states, positions, layer_type=kind)
    return cos.to(states.dtype), sin.to(states.dtype)


def _conv_layer(layer: Any, config: Any, halves: dict[str, Any]) -> RecurrentLayer:
    module, size = layer.conv, config.conv_L_cache
    into, out, bias = linear_of(module.in_proj), linear_of(module.out_proj), module.conv.bias
    taps = module.conv.weight.detach()[:, 0].T.contiguous()

    def mix(hidden: Tensor, state: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        before, after, x = into(hidden).chunk(3, dim=-1)
        inputs = torch.cat((state[0].transpose(1, 2), before * x), dim=1)
        return out(short_convolution(inputs, taps, bias).mul_(after)), [inputs[:, -size:].transpose(1, 2)]

    return RecurrentLayer(**halves, mix=mix, sizes={"conv": (None, (config.hidden_size, size))})


def _halves(layer: Any) -> dict[str, Any]:
    mlp = layer.feed_forward
    return {
        "input_norm": norm_of(layer.operator_norm),
        "mlp_norm": norm_of(layer.ffn_norm),
        "gate_up": fuse([mlp.w1, mlp.w3]),
        "intermediate_size": mlp.w1.out_features,
        "activation": F.silu,
        "down": linear_of(mlp.w2),
    }
