"""Adapter of gpt-oss: sinks in every head, a window in every other layer, and experts in place of each network."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from ondevice.model.families.common import attention, window_of
from ondevice.model.families.fusing import experts_of, norm_of
from ondevice.model.families.parts import BY_KIND, AttentionLayer


def gpt_oss_layers(model: Any) -> list[AttentionLayer]:
    """The layers of a gpt-oss."""
    config, body = model.config, model.model
    turn, activate = partial(_turn, body.rotary_emb), partial(_activate, config.swiglu_alpha, config.swiglu_limit)
    return [
        BY_KIND[kind](
            input_norm=norm_of(layer.input_layernorm),
            mlp_norm=norm_of(layer.post_attention_layernorm),
            intermediate_size=2 * config.intermediate_size,  # clamped apart, both halves are held twice
            experts=experts_of(layer.mlp.router, layer.mlp.experts, config.num_experts_per_tok, activate),
            sinks=layer.self_attn.sinks.detach(),
            sliding_window=window_of(config, index),
            **attention(layer.self_attn, config, turn),
        )
        for index, (kind, layer) in enumerate(zip(config.layer_types, body.layers, strict=True))
    ]


def _turn(rotary: Any, states: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
    """gpt-oss's module gives the angles of one half of a head; those of the other are the same."""
    cos, sin = rotary(states, positions)
    return torch.cat((cos, cos), dim=-1), torch.cat((sin, sin), dim=-1)


def _activate(alpha: float, limit: float, gate_up: Tensor) -> Tensor:
    """Gate and up take turns in the last dimension; both are clamped, and 1 is added to up."""
    gate, up = gate_up[..., ::2].clamp(max=limit), gate_up[..., 1::2].clamp(-limit, limit)
    up = up.add_(1).mul_(gate)
    return up.mul_(gate.mul_(alpha).sigmoid_())
