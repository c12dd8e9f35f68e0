"""A tiny Llama, or another tiny model, as a GGUF file with SmolLM2's kind of tokenizer."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf import MODEL_ARCH_NAMES, GGMLQuantizationType, GGUFWriter, get_tensor_name_map
from gguf.quants import quantize

from tests.builders.models import CHAT_TEMPLATE, byte_letter

HIDDEN, INTERMEDIATE, HEADS, KV_HEADS, HEAD_DIM, LAYERS = 64, 96, 4, 2, 16, 2
CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MERGES = [("Ġ", "Ġ"), ("h", "e"), ("1", "2")]  # two spaces, "he", and a pair of digits that must stay apart
TOKENS = [*CONTROL, *(byte_letter(byte) for byte in range(256)), *("".join(pair) for pair in MERGES)]


def write_gguf(
    path: Path, *, architecture: str = "llama", seed: int = 0, kinds: tuple[str, ...] = ("Q4_1",), bias: bool = False
) -> Path:
    """Random weights, in the quantisation types of the default model: Q4_1, Q8_0 and F32.

    Args:
        kinds: other types for the layers' weights, which take turns; those of 32 values a block.
        bias: projections to queries, keys and values have one, as those of Qwen2 do.
    """
    writer = GGUFWriter(path, architecture)
    writer.add_context_length(128)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INTERMEDIATE)
    writer.add_rope_dimension_count(HEAD_DIM)
    writer.add_rope_freq_base(10_000.0)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(TOKENS))
    _add_tokenizer(writer, "smollm" if architecture == "llama" else "qwen2")
    _add_weights(writer, np.random.default_rng(seed), kinds, bias)
    return _written(writer, path)


def write_model(
    path: Path,
    architecture: str,
    model: Any,
    vectors: dict[str, list[float]] | None = None,
    kind: str = "F32",
    **fields: Any,
) -> Path:
    """A tiny model of transformers as llama.cpp's converter writes it.

    Args:
        model: of a vocabulary of `len(TOKENS)`; of Gemma 2 to 4, gpt-oss, Granite 4,
            LFM2, Llama, Ministral 3, Phi-3, Qwen3.5 or SmolLM3.
        vectors: further tensors, by name.
        kind: the type of its matrices.
        fields: metadata of the family beside what all have; a dot is `__`.
    """
    config, writer = model.config, GGUFWriter(path, architecture)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    if "feed_forward_length" not in fields:
        writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    is_lfm2, without = architecture == "lfm2", ("conv", "linear_attention")
    kv_heads = config.per_layer_config[0].num_key_value_heads
    if "attention__head_count_kv" not in fields:
        of_layers = [kv_heads * (kind not in without) for kind in getattr(config, "layer_types", ())]
        writer.add_head_count_kv(of_layers if architecture in ("lfm2", "granitehybrid") else kv_heads)
    writer.add_layer_norm_rms_eps(config.norm_eps if is_lfm2 else config.rms_norm_eps)
    rope = config.rope_parameters
    writer.add_rope_freq_base(rope.get("full_attention", rope)["rope_theta"])
    for name, value in fields.items():
        key = f"{architecture}.{name.replace('__', '.')}"
        add = {int: writer.add_uint32, float: writer.add_float32, str: writer.add_string, list: writer.add_array}
        add[bool] = writer.add_bool
        add[type(value)](key, value)
    _add_tokenizer(
        writer,
        {
            "qwen35": "qwen35",
            "smollm3": "smaug-bpe",
            "gpt-oss": "gpt-4o",
            "granite": "refact",
            "granitehybrid": "dbrx",
        }.get(architecture, "qwen2"),
    )
    arch = next(arch for arch, name in MODEL_ARCH_NAMES.items() if name == architecture)
    names = get_tensor_name_map(arch, config.num_hidden_layers)
    state = model.state_dict()
    for name in [name for name in state if ".experts." in name or "input_linear" in name or "output_linear" in name]:
        state |= _apart(name, state.pop(name), config)
    for name, weight in state.items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        whole = name.replace("layer_scalar", "layer_scalar.weight").replace("sinks", "sinks.weight")
        stored = names.get_name(whole.replace("block_sparse_moe", "mlp"), (".weight", ".bias"))
        if name.endswith("dt_bias"):
            stored = names.get_name(name.replace("dt_bias", "dt_proj")) + ".bias"
        numbers = _as_stored(name, weight, config).contiguous().numpy()
        is_matrix = weight.dim() == 2 and not name.endswith((".bias", "router.weight"))
        own = (
            GGMLQuantizationType[kind]
            if is_matrix or (".experts." in name and weight.dim() == 3)
            else GGMLQuantizationType.F32
        )
        writer.add_tensor(stored, numbers if own == GGMLQuantizationType.F32 else quantize(numbers, own), raw_dtype=own)
    for name, numbers in (vectors or {}).items():
        writer.add_tensor(name, np.array(numbers, np.float32))
    return _written(writer, path)


def _apart(name: str, weight: torch.Tensor, config: Any) -> dict[str, torch.Tensor]:
    """The rows of gates, and those that go up, of one parameter with both; or the one that goes down."""
    module, kind = name.rpartition(".")[0], "bias" if name.endswith("_bias") else "weight"
    module = module.replace("block_sparse_moe", "mlp").replace(".input_linear", "").replace(".output_linear", "")
    module = module.replace("shared_mlp", "mlp.shared_expert" if config.num_local_experts else "mlp")
    if "GptOss" in type(config).__name__:
        weight = weight.transpose(1, 2) if kind == "weight" else weight
        gate, up = weight[:, ::2], weight[:, 1::2]
    else:
        gate, up = weight.chunk(2, dim=-2)
    if "gate_up" not in name and "input_linear" not in name:
        return {f"{module}.down_proj.{kind}": weight}
    return {f"{module}.gate_proj.{kind}": gate, f"{module}.up_proj.{kind}": up}


def _as_stored(name: str, weight: torch.Tensor, config: Any) -> torch.Tensor:
    """What llama.cpp's converter makes of a weight."""
    if name.endswith("sinks") or ".mamba." in name:
        return -weight.exp()[:, None] if name.endswith("A_log") else weight.squeeze(1) if weight.dim() == 3 else weight
    with_pairs = ("LlamaConfig", "Ministral3Config", "SmolLM3Config", "GraniteConfig", "GraniteMoeHybridConfig")
    if type(config).__name__ in with_pairs and ("q_proj" in name or "k_proj" in name):
        return weight.view(-1, 2, config.head_dim // 2, weight.shape[1]).transpose(1, 2).reshape(weight.shape)
    if ".conv" in name and weight.dim() == 3:
        weight = weight.squeeze(1)
    if type(config).__name__.startswith(("Gemma2", "Gemma3")) or "Qwen3_5" in type(config).__name__:
        weight = 1 + weight if name.endswith("norm.weight") and "linear_attn" not in name else weight
    if "linear_attn" not in name or name.endswith("norm.weight"):
        return weight
    weight = -weight.exp() if name.endswith("A_log") else weight
    keys, values = config.linear_num_key_heads, config.linear_num_value_heads
    size = (
        1
        if name.endswith(("A_log", "dt_bias", "in_proj_a.weight", "in_proj_b.weight"))
        else config.linear_value_head_dim
    )
    order = torch.arange(values * size).view(keys, values // keys, size).transpose(0, 1).flatten()
    if "out_proj" in name:
        return weight[:, order]
    first = len(weight) - values * size  # queries and keys stand before the values
    return torch.cat((weight[:first], weight[first:][order]))


def _add_tokenizer(writer: GGUFWriter, pre: str) -> None:
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(TOKENS)
    writer.add_token_types([3 if token in CONTROL else 1 for token in TOKENS])
    writer.add_token_merges([" ".join(pair) for pair in MERGES])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHAT_TEMPLATE)


def _written(writer: GGUFWriter, path: Path) -> Path:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_weights(writer: GGUFWriter, rng: np.random.Generator, kinds: tuple[str, ...], bias: bool) -> None:
    turns = itertools.cycle(GGMLQuantizationType[kind] for kind in kinds)
    _add(writer, rng, "token_embd.weight", (len(TOKENS), HIDDEN), GGMLQuantizationType.Q8_0)
    _add(writer, rng, "output_norm.weight", (HIDDEN,))
    for layer in range(LAYERS):
        _add(writer, rng, f"blk.{layer}.attn_norm.weight", (HIDDEN,))
        _add(writer, rng, f"blk.{layer}.ffn_norm.weight", (HIDDEN,))
        for part, rows in (("q", HEADS * HEAD_DIM), ("k", KV_HEADS * HEAD_DIM), ("v", KV_HEADS * HEAD_DIM)):
            _add(writer, rng, f"blk.{layer}.attn_{part}.weight", (rows, HIDDEN), next(turns))
            if bias:
                _add(writer, rng, f"blk.{layer}.attn_{part}.bias", (rows,))
        _add(writer, rng, f"blk.{layer}.attn_output.weight", (HIDDEN, HEADS * HEAD_DIM), next(turns))
        _add(writer, rng, f"blk.{layer}.ffn_gate.weight", (INTERMEDIATE, HIDDEN), next(turns))
        _add(writer, rng, f"blk.{layer}.ffn_up.weight", (INTERMEDIATE, HIDDEN), next(turns))
        _add(writer, rng, f"blk.{layer}.ffn_down.weight", (HIDDEN, INTERMEDIATE), next(turns))


def _add(
    writer: GGUFWriter,
    rng: np.random.Generator,
    name: str,
    shape: tuple[int, ...],
    kind: GGMLQuantizationType | None = None,
) -> None:
    values = rng.standard_normal(shape).astype(np.float32) / shape[-1] ** 0.5
    if kind is None:
        writer.add_tensor(name, 1.0 + 0.1 * values)
    else:
        writer.add_tensor(name, quantize(values, kind), raw_dtype=kind)
