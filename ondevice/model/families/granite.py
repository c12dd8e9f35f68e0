"""Adapter of Granite 3, a Llama with multipliers, and of Granite 4: Mamba-2 in most layers, and perhaps experts."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ondevice.errors import ModelError
from ondevice.kernels.gated import gated
from ondevice.kernels.state_space import state_space
from ondevice.model.families.common import NoTurn, activation_of, attention, short_convolution
from ondevice.model.families.fusing import experts_of, linear_of, norm_of
from ondevice.model.families.llama import llama_layers
from ondevice.model.families.parts import AttentionLayer, Layer, Mix, RecurrentLayer
from ondevice.model.mixture import Op


def granite_layers(model: Any) -> list[Layer]:
    """The layers of a Granite 3."""
    return [replace(layer, residual_scale=float(model.config.residual_multiplier)) for layer in llama_layers(model)]


def granite_hybrid_layers(model: Any) -> list[Layer]:
    """The layers of a Granite 4.

    Raises:
        ModelError: none of them attends.
    """
    config, body, layers = model.config, model.model, list[Layer]()
    turn = NoTurn(config) if body.rotary_emb is None else body.rotary_emb
    for layer in body.layers:
        halves = _halves(layer, config)
        if layer.mamba is None:
            layers.append(AttentionLayer(**halves, **attention(layer.self_attn, config, turn)))
            continue
        mamba = layer.mamba
        sizes = {
            "conv": (None, (mamba.conv_dim, mamba.conv_kernel_size)),
            "recurrent": (torch.float32, (mamba.num_heads, mamba.head_dim, mamba.ssm_state_size)),
        }
        # What goes in, the convolution's inputs and outputs, and four times what comes out of the state space.
        width = mamba.in_proj.out_features + 2 * mamba.conv_dim + 4 * mamba.intermediate_size
        layers.append(RecurrentLayer(**halves, mix=_mixer(mamba), sizes=sizes, width=width))
    if not any(isinstance(layer, AttentionLayer) for layer in layers):
        raise ModelError("No layer of this model attends to what a pot holds", fix="Use a Granite 4 with attention.")
    return layers


def granite_embeddings(model: Any) -> Op:
    """`ModelParts.embed` of a Granite."""
    embed, factor = model.model.embed_tokens, model.config.embedding_multiplier
    return lambda ids: embed(ids) * factor


def _halves(layer: Any, config: Any) -> dict[str, Any]:
    """Norms, the network that all tokens share, and the experts, if there are any."""
    mlp, mixture, experts = layer.shared_mlp, layer.block_sparse_moe, None
    activation, width = activation_of(config, mlp.activation), config.shared_intermediate_size
    if mixture is not None:
        activate, width = partial(gated, activation=activation), max(width, config.intermediate_size)
        experts = experts_of(mixture.router, mixture.experts, config.num_experts_per_tok, activate)
    return {
        "input_norm": norm_of(layer.input_layernorm),
        "mlp_norm": norm_of(layer.post_attention_layernorm),
        "gate_up": linear_of(mlp.input_linear),
        "intermediate_size": width,
        "activation": activation,
        "down": linear_of(mlp.output_linear),
        "experts": experts,
        "residual_scale": float(layer.residual_multiplier),
    }


def _mixer(mamba: Any) -> Mix:
    """Mamba-2 of one layer: a short convolution, the state space, and a norm that is gated before it."""
    into, out, size = linear_of(mamba.in_proj), linear_of(mamba.out_proj), mamba.conv_kernel_size
    taps, bias = mamba.conv1d.weight.detach()[:, 0].T.contiguous(), mamba.conv1d.bias
    decay, skip = -mamba.A_log.detach().float().exp(), mamba.D.detach().float()
    inner, num_groups, limits = mamba.intermediate_size, mamba.n_groups, mamba.time_step_limit
    weight, eps = mamba.norm.weight.detach(), mamba.norm.variance_epsilon
    widths = (inner, num_groups * mamba.ssm_state_size, num_groups * mamba.ssm_state_size)

    def mix(hidden: Tensor, state: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        gate, mixed, steps = into(hidden).split((inner, mamba.conv_dim, mamba.num_heads), dim=-1)
        inputs = torch.cat((state[0].transpose(1, 2), mixed), dim=1)
        x, keys, queries = F.silu(short_convolution(inputs, taps, bias)).float().split(widths, dim=-1)
        x = x.unflatten(-1, (mamba.num_heads, mamba.head_dim))
        keys, queries = (part.unflatten(-1, (num_groups, -1)) for part in (keys, queries))
        steps = F.softplus((steps + mamba.dt_bias).float()).clamp(*limits)
        y, new = state_space(x, steps, decay, keys, queries, state[1])
        y = (y + skip[:, None] * x).flatten(-2) * F.silu(gate.float())
        groups = y.unflatten(-1, (num_groups, -1))
        normed = F.rms_norm(groups, groups.shape[-1:], eps=eps).flatten(-2).to(hidden.dtype)
        return out(weight * normed), [inputs[:, -size:].transpose(1, 2), new]

    return mix
