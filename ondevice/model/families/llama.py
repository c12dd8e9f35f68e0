"""Adapter of the families that are built as Llama is: separate projections, and a norm before each half of a layer.

Qwen3 norms queries and keys; Mistral and Qwen2 may have windows; some layers of SmolLM3 know no positions; Ministral 3
scales queries that stand far from the beginning; projections of Phi-3 to Phi-4-mini are fused in the checkpoint.
"""

from __future__ import annotations

from typing import Any

from ondevice.model.families.common import (
    NoTurn,
    activation_of,
    attention,
    heads,
    llama_halves,
    window_of,
)
from ondevice.model.families.fusing import linear_of, norm_of
from ondevice.model.families.parts import AttentionLayer, QueryScale


def llama_layers(model: Any) -> list[AttentionLayer]:
    """The layers of a Llama, Mistral, Ministral 3, Qwen2, Qwen3 or SmolLM3."""
    config, body = model.config, model.model
    turns = [NoTurn(config), body.rotary_emb]  # of layers without positions, and with
    with_positions = getattr(config, "no_rope_layers", None) or [1] * len(body.layers)
    return [
        AttentionLayer(
            **llama_halves(layer, config),
            **attention(layer.self_attn, config, turns[with_positions[index]]),
            query_scale=_query_scale(config),
            sliding_window=window_of(config, index),
        )
        for index, layer in enumerate(body.layers)
    ]


def phi3_layers(model: Any) -> list[AttentionLayer]:
    """The layers of a Phi-3."""
    config, body = model.config, model.model
    return [
        AttentionLayer(
            input_norm=norm_of(layer.input_layernorm),
            qkv=linear_of(layer.self_attn.qkv_proj),
            out=linear_of(layer.self_attn.o_proj),
            mlp_norm=norm_of(layer.post_attention_layernorm),
            gate_up=linear_of(layer.mlp.gate_up_proj),
            intermediate_size=config.intermediate_size,
            activation=activation_of(config, layer.mlp.activation_fn),
            down=linear_of(layer.mlp.down_proj),
            sliding_window=window_of(config, index),
            **heads(layer.self_attn, config, body.rotary_emb),
        )
        for index, layer in enumerate(body.layers)
    ]


def complete_smollm3(config: Any, fields: dict[str, Any]) -> None:
    """Set which layers know positions: GGUF files do not say, and llama.cpp leaves out every fourth."""
    config.no_rope_layers = [int((index + 1) % 4 != 0) for index in range(config.num_hidden_layers)]


def _query_scale(config: Any) -> QueryScale | None:
    rope: dict[str, Any] = config.rope_parameters
    beta = rope.get("llama_4_scaling_beta")
    return QueryScale(beta, rope["original_max_position_embeddings"]) if beta else None
