"""The parts of a model under the names that transformers gives them, without it: its modules take seconds to import.

Linear layers, embedding and head are left to who has the weights; `families.model_parts` takes it apart as any other.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ondevice.model.families import family_name


def skeleton(config: SimpleNamespace) -> Any:
    """A Llama, Qwen2 or Qwen3 of this configuration, with its norms and RoPE alone; `forward` is the decoder's."""
    model, body = nn.Module(), nn.Module()
    model.config, model.generation_config = config, SimpleNamespace(eos_token_id=None)  # type: ignore[assignment]
    model.model, body.norm, body.rotary_emb = body, _Norm(config), _Rotary(config)
    body.layers = nn.ModuleList(_layer(config) for _ in range(config.num_hidden_layers))
    return model


def _layer(config: SimpleNamespace) -> nn.Module:
    layer, attention, mlp = nn.Module(), nn.Module(), nn.Module()
    layer.self_attn, layer.mlp = attention, mlp
    layer.input_layernorm, layer.post_attention_layernorm = _Norm(config), _Norm(config)
    # In this order packed weights are kept, and lie side by side: linears of other orders would be copied together.
    for parent, names in ((attention, ("q_proj", "k_proj", "v_proj", "o_proj")), (mlp, ("gate_proj", "up_proj"))):
        for name in names:
            parent.register_module(name, None)
    attention.scaling, mlp.act_fn = config.head_dim**-0.5, F.silu  # type: ignore[assignment]
    if family_name(config) == "qwen3":
        attention.q_norm, attention.k_norm = _Norm(config), _Norm(config)
    return layer


class _Norm(nn.Module):
    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        self.weight, self.variance_epsilon = nn.Parameter(torch.empty(0)), config.rms_norm_eps


class _Rotary(nn.Module):
    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        exponents = torch.arange(0, config.head_dim, 2, dtype=torch.float) / config.head_dim
        self.frequencies = 1.0 / (config.rope_parameters["rope_theta"] ** exponents)

    def forward(self, states: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines, (batch, n, head_dim) of the type of `states`."""
        turns = positions[..., None].float() * self.frequencies
        angles = torch.cat((turns, turns), dim=-1)
        return angles.cos().to(states.dtype), angles.sin().to(states.dtype)
