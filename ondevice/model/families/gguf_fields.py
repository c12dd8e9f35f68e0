"""Fields of transformers' configurations from GGUF files that transformers itself does not read.

Metadata come without the name of the family, with the divisors of RoPE's frequencies; tensors' shapes by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ondevice.model.families.common import as_written

EMBEDDING, HEAD, OWN_EMBEDDING = "token_embd.weight", "output.weight", "per_layer_token_embd.weight"
Metadata = Mapping[str, Any]
Shapes = Mapping[str, tuple[int, ...]]


def fields_of_all(metadata: Metadata, shapes: Shapes) -> dict[str, Any]:
    """Those that every family has under the same names."""
    return {
        "vocab_size": shapes[EMBEDDING][0],
        "hidden_size": metadata["embedding_length"],
        "num_hidden_layers": metadata["block_count"],
        "num_attention_heads": metadata["attention.head_count"],
        "max_position_embeddings": metadata["context_length"],
        "rms_norm_eps": as_written(metadata["attention.layer_norm_rms_epsilon"]),
        "tie_word_embeddings": HEAD not in shapes,
    }


def ministral3_fields(metadata: Metadata, shapes: Shapes) -> dict[str, Any]:
    """Those of a Ministral 3.

    Raises:
        ValueError: it has experts, or positions that are not scaled by YaRN.
    """
    if metadata.get("expert_count") or metadata.get("rope.scaling.type") != "yarn":
        raise ValueError("it is no dense Ministral 3 with YaRN")
    factor = metadata["rope.scaling.yarn_log_multiplier"]
    return fields_of_all(metadata, shapes) | {
        "intermediate_size": metadata["feed_forward_length"],
        "num_key_value_heads": metadata["attention.head_count_kv"],
        "head_dim": metadata["attention.key_length"],
        "rope_parameters": {
            **_yarn(metadata),
            "mscale": factor,
            "mscale_all_dim": factor,
            "llama_4_scaling_beta": as_written(metadata["attention.temperature_scale"]),
        },
    }


def gemma4_fields(metadata: Metadata, shapes: Shapes) -> dict[str, Any]:
    """Those of a Gemma 4.

    Raises:
        ValueError: it has experts.
    """
    if metadata.get("expert_count"):
        raise ValueError("it has experts, which are not supported; E2B, E4B, 12B and 31B have none")
    windows, depth = metadata["attention.sliding_window_pattern"], metadata["block_count"]
    first_full, size = windows.index(False), metadata.get("embedding_length_per_layer_input", 0)
    kv_heads, wide = _each(metadata["attention.head_count_kv"], depth), _each(metadata["feed_forward_length"], depth)
    divisors = metadata["rope_freqs"]
    return fields_of_all(metadata, shapes) | {
        "intermediate_size": wide[0],
        "use_double_wide_mlp": wide[-1] > wide[0],
        "num_key_value_heads": kv_heads[windows.index(True)],
        "num_global_key_value_heads": kv_heads[first_full],
        "attention_k_eq_v": f"blk.{first_full}.attn_v.weight" not in shapes,
        "num_kv_shared_layers": metadata.get("attention.shared_kv_layers", 0),
        "head_dim": metadata["attention.key_length_swa"],
        "global_head_dim": metadata["attention.key_length"],
        "hidden_size_per_layer_input": size,
        "vocab_size_per_layer_input": shapes[OWN_EMBEDDING][0] if size else 0,
        "sliding_window": metadata["attention.sliding_window"],
        "layer_types": ["sliding_attention" if window else "full_attention" for window in windows],
        "final_logit_softcapping": metadata.get("final_logit_softcapping"),
        "rope_parameters": {
            "sliding_attention": {"rope_type": "default", "rope_theta": metadata["rope.freq_base_swa"]},
            "full_attention": {
                "rope_type": "proportional",
                "rope_theta": metadata["rope.freq_base"],
                "partial_rotary_factor": divisors.count(1.0) / len(divisors),
            },
        },
        "pad_token_id": metadata.get("tokenizer.ggml.padding_token_id"),
    }


def gpt_oss_fields(metadata: Metadata, shapes: Shapes) -> dict[str, Any]:
    """Those of a gpt-oss; which layers have windows, and what clamps its experts, no file says.

    Raises:
        ValueError: its positions are not scaled by YaRN.
    """
    if metadata.get("rope.scaling.type") != "yarn":
        raise ValueError("its positions are not scaled by YaRN")
    return fields_of_all(metadata, shapes) | {
        "intermediate_size": metadata["expert_feed_forward_length"],
        "num_key_value_heads": metadata["attention.head_count_kv"],
        "head_dim": metadata["attention.key_length"],
        "sliding_window": metadata["attention.sliding_window"],
        "num_local_experts": metadata["expert_count"],
        "num_experts_per_tok": metadata["expert_used_count"],
        "rope_parameters": _yarn(metadata) | {"truncate": False},
    }


def _yarn(metadata: Metadata) -> dict[str, Any]:
    return {
        "rope_type": "yarn",
        "rope_theta": metadata["rope.freq_base"],
        "factor": metadata["rope.scaling.factor"],
        "original_max_position_embeddings": metadata["rope.scaling.original_context_length"],
        "beta_fast": metadata.get("rope.scaling.yarn_beta_fast", 32.0),
        "beta_slow": metadata.get("rope.scaling.yarn_beta_slow", 1.0),
    }


def granite_fields(metadata: Metadata, shapes: Shapes) -> dict[str, Any]:
    """Those of a Granite 3, and of a Granite 4 without Mamba-2 and experts, which is one.

    Raises:
        ValueError: its positions are scaled.
    """
    if metadata.get("rope.scaling.type", "none") != "none":
        raise ValueError(f"its RoPE is scaled ({metadata['rope.scaling.type']}), which is not read from such a file")
    return fields_of_all(metadata, shapes) | {
        "intermediate_size": shapes["blk.0.ffn_gate.weight"][0],
        "num_key_value_heads": max(_each(metadata["attention.head_count_kv"], 1)),
        "rope_parameters": {"rope_type": "default", "rope_theta": metadata.get("rope.freq_base", 10_000.0)},
        **_multipliers(metadata),
    }


def _multipliers(metadata: Metadata) -> dict[str, float]:
    names = {"attention.scale": "attention_multiplier", "embedding_scale": "embedding_multiplier"}
    names |= {"residual_scale": "residual_multiplier", "logit_scale": "logits_scaling"}
    return {own: as_written(metadata.get(name, 1.0)) for name, own in names.items()}


def granite_hybrid_fields(metadata: Metadata, shapes: Shapes) -> dict[str, Any]:
    """Those of a Granite 4 with Mamba-2."""
    depth, hidden, inner = metadata["block_count"], metadata["embedding_length"], metadata["ssm.inner_size"]
    kv_heads, num_experts = _each(metadata["attention.head_count_kv"], depth), metadata.get("expert_count", 0)
    shared = "blk.0.ffn_gate_shexp.weight" if num_experts else "blk.0.ffn_gate.weight"
    return fields_of_all(metadata, shapes) | {
        "intermediate_size": metadata["feed_forward_length"],
        "shared_intermediate_size": shapes[shared][0],
        "num_local_experts": num_experts,
        "num_experts_per_tok": metadata.get("expert_used_count", 0),
        "num_key_value_heads": max(kv_heads),
        "layer_types": ["full_attention" if heads else "linear_attention" for heads in kv_heads],
        "position_embedding_type": "rope" if metadata.get("rope.scaling.finetuned") else None,
        "rope_parameters": {"rope_type": "default", "rope_theta": metadata.get("rope.freq_base", 10_000.0)},
        "mamba_n_heads": metadata["ssm.time_step_rank"],
        "mamba_n_groups": metadata["ssm.group_count"],
        "mamba_d_state": metadata["ssm.state_size"],
        "mamba_d_conv": metadata["ssm.conv_kernel"],
        "mamba_expand": inner // hidden,
        "mamba_conv_bias": any(name.endswith("ssm_conv1d.bias") for name in shapes),
        **_multipliers(metadata),
    }


def _each(value: int | list[int], depth: int) -> list[int]:
    return value if isinstance(value, list) else [value] * depth
