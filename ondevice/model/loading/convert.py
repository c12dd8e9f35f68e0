"""Writes the default model, a Llama in GGUF, as a folder that transformers reads in seconds.

transformers can read GGUF itself, but takes half a minute for it at every start, and its tokenizer for
this file misses the split into single digits (`tokenizer.ggml.pre = smollm`), so that "  12" comes out
as other tokens than those the model was trained on.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ondevice.model.families import named
from ondevice.model.loading.gguf_file import GgufFile

_CONTROL = 3  # ggml's token type of tokens that steer the model
_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def convert(gguf: GgufFile, folder: Path, on_fraction: Callable[[float], None]) -> None:
    """Write config, tokenizer and float32 weights of a tied-embedding Llama into `folder`."""
    fields = gguf.metadata
    _write_json(folder / "config.json", _config(fields))
    _write_json(folder / "generation_config.json", _generation_config(fields))
    _write_json(folder / "tokenizer.json", _tokenizer(fields))
    _write_json(folder / "tokenizer_config.json", _tokenizer_config(fields))
    (folder / "chat_template.jinja").write_text(fields["tokenizer.chat_template"], encoding="utf-8")
    _write_weights(gguf, folder / "model.safetensors", on_fraction)


def _write_weights(gguf: GgufFile, path: Path, on_fraction: Callable[[float], None]) -> None:
    from safetensors.numpy import save_file

    heads = {
        "attn_q": gguf.metadata["llama.attention.head_count"],
        "attn_k": gguf.metadata["llama.attention.head_count_kv"],
    }
    weights: dict[str, npt.NDArray[np.float32]] = {}
    for done, tensor in enumerate(gguf.tensors, start=1):
        part = tensor.name.split(".")[-2]
        values = gguf.weights(tensor)
        if part in heads:
            values = _halves_apart(values, heads[part])
        weights[_weight_name(tensor.name)] = np.ascontiguousarray(values)
        on_fraction(done / len(gguf.tensors))
    save_file(weights, path, metadata={"format": "pt"})


def _weight_name(name: str) -> str:
    if name == "token_embd.weight":  # also the output layer: tied, stored once
        return "model.embed_tokens.weight"
    if name == "output_norm.weight":
        return "model.norm.weight"
    _, layer, part, kind = name.split(".")
    return f"model.layers.{layer}.{_LAYER_NAMES[part]}.{kind}"


def _halves_apart(values: npt.NDArray[np.float32], num_heads: int) -> npt.NDArray[np.float32]:
    """Undo llama.cpp's order of rotary dimensions: pairs side by side there, in two halves here.

    Args:
        values: projection, shape (num_heads * head_dim, hidden_size).
    """
    rows, columns = values.shape
    pairs = values.reshape(num_heads, rows // num_heads // 2, 2, columns)
    return pairs.swapaxes(1, 2).reshape(rows, columns)


def _config(fields: dict[str, Any]) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        **named("llama"),
        "dtype": "float32",
        "vocab_size": len(fields["tokenizer.ggml.tokens"]),
        "hidden_size": fields["llama.embedding_length"],
        "intermediate_size": fields["llama.feed_forward_length"],
        "num_hidden_layers": fields["llama.block_count"],
        "num_attention_heads": fields["llama.attention.head_count"],
        "num_key_value_heads": fields["llama.attention.head_count_kv"],
        "head_dim": fields["llama.rope.dimension_count"],
        "max_position_embeddings": fields["llama.context_length"],
        # Stored as float32 in the file: 9.999999747378752e-06 means 1e-05.
        "rms_norm_eps": float(str(np.float32(fields["llama.attention.layer_norm_rms_epsilon"]))),
        "rope_parameters": {"rope_type": "default", "rope_theta": float(fields["llama.rope.freq_base"])},
        "hidden_act": "silu",
        "tie_word_embeddings": True,
        **_special_ids(fields),
    }


def _special_ids(fields: dict[str, Any]) -> dict[str, int]:
    names = {"bos_token_id": "bos", "eos_token_id": "eos", "pad_token_id": "padding"}
    return {key: fields[f"tokenizer.ggml.{name}_token_id"] for key, name in names.items()}


def _generation_config(fields: dict[str, Any]) -> dict[str, Any]:
    return {"_from_model_config": True, **_special_ids(fields)}


def _tokenizer(fields: dict[str, Any]) -> dict[str, Any]:
    """The contents of tokenizer.json: byte-level BPE, every digit a token of its own (`smollm`)."""
    if (fields["tokenizer.ggml.model"], fields["tokenizer.ggml.pre"]) != ("gpt2", "smollm"):
        raise ValueError("the tokenizer in the file is not SmolLM's")
    tokens = fields["tokenizer.ggml.tokens"]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    digits = {"type": "Digits", "individual_digits": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": index, "content": token, **flags}
            for index, (token, kind) in enumerate(zip(tokens, fields["tokenizer.ggml.token_type"], strict=True))
            if kind == _CONTROL
        ],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [digits, byte_level]},
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: index for index, token in enumerate(tokens)},
            "merges": fields["tokenizer.ggml.merges"],
        },
    }


def _tokenizer_config(fields: dict[str, Any]) -> dict[str, Any]:
    tokens = fields["tokenizer.ggml.tokens"]
    names = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
    special = {key: tokens[fields[f"tokenizer.ggml.{name}_token_id"]] for key, name in names.items()}
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": fields["llama.context_length"],
        "clean_up_tokenization_spaces": False,
        **special,
    }


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
