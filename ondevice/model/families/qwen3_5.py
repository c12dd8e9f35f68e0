"""Adapter of the dense Qwen3.5 to 3.8: three layers with a gated delta rule, then one of attention with a gate.

Where no kernel of ours runs it, the delta rule is transformers' own; only the state that its module asks for is ours.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ondevice.kernels.delta_rule import delta_rule, has_kernel, prepare_delta_rule
from ondevice.kernels.delta_weights import DeltaRule
from ondevice.model.families.common import attention, llama_halves
from ondevice.model.families.fusing import fuse, linear_of
from ondevice.model.families.parts import AttentionLayer, Layer, Mix, RecurrentLayer


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
        layers.append(RecurrentLayer(**halves, mix=_mixer(delta), sizes=sizes))
    return layers


def _mixer(delta: Any) -> Mix:
    """The delta rule of one layer of transformers."""
    rule = DeltaRule(
        taps=delta.conv1d.weight.detach()[:, 0].T.contiguous(),
        decay=delta.A_log.detach().float().exp(),
        step=delta.dt_bias.detach(),
        norm=delta.norm.weight.detach(),
        eps=delta.norm.variance_epsilon,
        num_key_heads=delta.num_k_heads,
        num_value_heads=delta.num_v_heads,
        key_dim=delta.head_k_dim,
        value_dim=delta.head_v_dim,
    )
    by_transformers = _by_transformers(delta)
    # What is laid together for the kernel, transformers' module would multiply whole for each of its parts.
    if delta.activation != "silu" or delta.conv1d.bias is not None or not has_kernel(rule.taps, rule):
        return by_transformers
    prepare_delta_rule(rule)
    widths, num_taps, out = (delta.conv_dim, delta.value_dim), len(rule.taps), linear_of(delta.out_proj)
    mixed_and_gate, numbers = fuse([delta.in_proj_qkv, delta.in_proj_z]), fuse([delta.in_proj_b, delta.in_proj_a])

    def mix(hidden: Tensor, state: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        if not has_kernel(hidden, rule):
            return by_transformers(hidden, state)
        mixed, gate = (part.contiguous() for part in mixed_and_gate(hidden).split(widths, dim=-1))
        strengths, steps = (part.contiguous() for part in numbers(hidden).chunk(2, dim=-1))
        inputs = state[0].transpose(1, 2).contiguous()
        mixture, new = delta_rule(mixed, gate, steps, strengths, inputs, state[1], rule)
        last = torch.cat((inputs, mixed[:, -num_taps:]), dim=1)[:, -num_taps:]
        return out(mixture), [last.transpose(1, 2), new]

    return mix


def _by_transformers(module: Any) -> Mix:
    """`RecurrentLayer.mix` by a module of transformers."""

    def mix(hidden: Tensor, state: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        held = _Held(*state)
        return module(hidden, cache_params=held), held.parts

    return mix


class _Held:
    """The state of one layer, as transformers' modules ask their cache for it; the tensors given stay as they are."""

    def __init__(self, *parts: Tensor) -> None:
        self.parts = list(parts)

    def is_recording_past(self, layer_idx: int) -> bool:
        """True, so that a single token, too, goes through `update_conv_state`, and nothing is written in place."""
        return True

    def get_conv_state(self, layer_idx: int, state_idx: int = 0) -> Tensor:
        return self.parts[0]

    def get_recurrent_state(self, layer_idx: int, state_idx: int = 0) -> Tensor:
        return self.parts[1]

    def update_conv_state(self, new: Tensor, layer_idx: int, conv_kernel_size: int) -> Tensor:
        """The last inputs with the new ones after them, (batch, channels, n)."""
        whole = torch.cat((self.parts[0], new), dim=-1)
        self.parts[0] = whole[..., -conv_kernel_size:]
        return whole

    def update_recurrent_state(self, new: Tensor, layer_idx: int) -> None:
        self.parts[1] = new
