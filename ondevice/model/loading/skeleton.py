"""The parts of a model under the names that transformers gives them, without it: its modules take seconds to import.

Its parameters have no memory: they are left to who has the weights; `families.model_parts` takes it apart as any other.
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
    size, depth = config.hidden_size, config.num_hidden_layers
    model.model, body.norm, body.rotary_emb = body, _Norm(size, config), _Rotary(config)
    body.embed_tokens = nn.Embedding.from_pretrained(torch.empty(config.vocab_size, size, device="meta"))
    body.layers = nn.ModuleList(_layer(config) for _ in range(depth))
    model.lm_head = _Linear(size, config.vocab_size)
    return model


def _layer(config: SimpleNamespace) -> nn.Module:
    layer, attention, mlp = nn.Module(), nn.Module(), nn.Module()
    layer.self_attn, layer.mlp = attention, mlp
    size, inner, has_bias = config.hidden_size, config.intermediate_size, config.attention_bias
    num_queries, num_keys = (n * config.head_dim for n in (config.num_attention_heads, config.num_key_value_heads))
    layer.input_layernorm, layer.post_attention_layernorm = _Norm(size, config), _Norm(size, config)
    # In this order packed weights are kept, and lie side by side: linears of other orders would be copied together.
    for name, rows in (("q_proj", num_queries), ("k_proj", num_keys), ("v_proj", num_keys)):
        attention.add_module(name, _Linear(size, rows, has_bias))
    attention.o_proj = _Linear(num_queries, size)
    mlp.gate_proj, mlp.up_proj, mlp.down_proj = _Linear(size, inner), _Linear(size, inner), _Linear(inner, size)
    attention.scaling, mlp.act_fn = config.head_dim**-0.5, F.silu  # type: ignore[assignment]
    if family_name(config) == "qwen3":
        attention.q_norm, attention.k_norm = _Norm(config.head_dim, config), _Norm(config.head_dim, config)
    return layer


class _Linear(nn.Module):
    def __init__(self, num_columns: int, num_rows: int, has_bias: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_rows, num_columns, device="meta"))
        self.bias = nn.Parameter(torch.empty(num_rows, device="meta")) if has_bias else None


class _Norm(nn.Module):
    def __init__(self, size: int, config: SimpleNamespace) -> None:
        super().__init__()
        self.weight, self.variance_epsilon = nn.Parameter(torch.empty(size, device="meta")), config.rms_norm_eps


class _Rotary(nn.Module):
    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        exponents = torch.arange(0, config.head_dim, 2, dtype=torch.float) / config.head_dim
        self.frequencies = 1.0 / (config.rope_parameters["rope_theta"] ** exponents)

    def forward(self, states: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines, (batch, n, dim) of the type of `states`."""
        turns = positions[..., None].float() * self.frequencies
        angles = torch.cat((turns, turns), dim=-1)
        return angles.cos().to(states.dtype), angles.sin().to(states.dtype)
