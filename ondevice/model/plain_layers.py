"""Layers of plain packed projections and SiLU, with norms before their two halves only."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ondevice.kernels.norm import RMSNorm
from ondevice.kernels.packed import TILE_ROWS, PackedWeight
from ondevice.model.families.parts import AttentionLayer, Linear, ModelParts


class PlainLayer(NamedTuple):
    """One of them; there is no bias but that of `qkv`."""

    input_norm: RMSNorm
    q_norm: RMSNorm | None
    k_norm: RMSNorm | None
    mlp_norm: RMSNorm
    qkv: PackedWeight
    qkv_bias: Tensor | None
    out: PackedWeight
    gate_up: PackedWeight
    down: PackedWeight


def plain_layers(parts: ModelParts) -> tuple[PlainLayer, ...] | None:
    """The layers of a model on a CPU in float32; None where one has something that is left out here."""
    if parts.device.type != "cpu" or parts.dtype != torch.float32 or parts.has_state or not parts.has_plain_scores:
        return None
    layers = [_plain_layer(layer) for layer in parts.layers]
    return None if None in layers else tuple(filter(None, layers))


def _plain_layer(layer: AttentionLayer) -> PlainLayer | None:
    is_gated = layer.is_gated or layer.head_gate is not None
    is_other = is_gated or layer.experts is not None or layer.residual_scale != 1.0
    if layer.post_attention_norm or layer.post_mlp_norm or is_other or layer.activation is not F.silu:
        return None
    weights, biases = list[PackedWeight](), list[Tensor | None]()
    for linear in (layer.qkv, layer.out, layer.gate_up, layer.down):
        if not (isinstance(linear, Linear) and isinstance(linear.weight, PackedWeight)):
            return None
        weights.append(linear.weight)
        biases.append(linear.bias)
    has_tiles = all(weight.shape[0] % TILE_ROWS == 0 for weight in weights)
    if not has_tiles or any(bias is not None for bias in biases[1:]):
        return None
    qkv, out, gate_up, down = weights
    norms = layer.input_norm, layer.q_norm, layer.k_norm, layer.mlp_norm
    return PlainLayer(*norms, qkv, biases[0], out, gate_up, down)
