"""Adapter of the families that are built as Llama is: separate projections, and a norm before each half of a layer.

Qwen3 norms queries and keys; Mistral and Qwen2 may have windows; some layers of SmolLM3 know no positions; Ministral 3
scales queries that stand far from the beginning.
"""

from __future__ import annotations

from typing import Any

from ondevice.model.families.common import NoTurn, as_written, attention, head_dim_of, llama_halves, window_of
from ondevice.model.families.parts import AttentionLayer, QueryScale


def llama_layers(model: Any) -> list[AttentionLayer]:
    """The layers of a Llama, Mistral, Ministral 3, Qwen2, Qwen3 or SmolLM3."""
    config, body = model.config, model.model
    turns = [NoTurn(head_dim_of(config)), body.rotary_emb]  # of layers without positions, and with
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


def complete_smollm3(config: Any, fields: dict[str, Any]) -> None:
    """Set which layers know positions: GGUF files do not say, and llama.cpp leaves out every fourth."""
    config.no_rope_layers = [int((index + 1) % 4 != 0) for index in range(config.num_hidden_layers)]


def ministral3_fields(metadata: dict[str, Any], shapes: dict[str, tuple[int, ...]]) -> dict[str, Any]:
    """The fields of transformers' configuration from a GGUF file of a Ministral 3.

    Args:
        metadata: without the name of the family.
        shapes: of its tensors, by name.

    Raises:
        ValueError: it has experts, or positions that are not scaled by YaRN.
    """
    if metadata.get("expert_count") or metadata.get("rope.scaling.type") != "yarn":
        raise ValueError("it is no dense Ministral 3 with YaRN")
    factor = metadata["rope.scaling.yarn_log_multiplier"]
    return {
        "vocab_size": shapes["token_embd.weight"][0],
        "hidden_size": metadata["embedding_length"],
        "intermediate_size": metadata["feed_forward_length"],
        "num_hidden_layers": metadata["block_count"],
        "num_attention_heads": metadata["attention.head_count"],
        "num_key_value_heads": metadata["attention.head_count_kv"],
        "head_dim": metadata["attention.key_length"],
        "max_position_embeddings": metadata["context_length"],
        "rms_norm_eps": as_written(metadata["attention.layer_norm_rms_epsilon"]),
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": metadata["rope.freq_base"],
            "factor": metadata["rope.scaling.factor"],
            "original_max_position_embeddings": metadata["rope.scaling.original_context_length"],
            "beta_fast": metadata["rope.scaling.yarn_beta_fast"],
            "beta_slow": metadata["rope.scaling.yarn_beta_slow"],
            "mscale": factor,
            "mscale_all_dim": factor,
            "llama_4_scaling_beta": as_written(metadata["attention.temperature_scale"]),
        },
        "tie_word_embeddings": "output.weight" not in shapes,
    }


def _query_scale(config: Any) -> QueryScale | None:
    rope: dict[str, Any] = config.rope_parameters
    beta = rope.get("llama_4_scaling_beta")
    return QueryScale(beta, rope["original_max_position_embeddings"]) if beta else None
