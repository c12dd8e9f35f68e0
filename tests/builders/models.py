"""Tiny models with random weights, and a byte tokenizer, for tests that need no files.

Every family the decoder supports has a row; sizes are small, but every feature that tells the families
apart is on: biases, q/k norms, fused projections, sliding windows, soft-capping. Weights are scaled so
that attention and logits are far from uniform, hence a wrong mask, position or cap changes the result.
"""

from __future__ import annotations

import functools
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load, save
from tokenizers import AddedToken, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as Backend

from ondevice.config import EngineConfig, GenerationConfig, PotConfig, TierConfig
from ondevice.documents.tokens import DocumentTokens, Encode, Int32Array
from ondevice.documents.types import Document, Page
from ondevice.model.decoder import Decoder
from ondevice.model.loading._transformers import transformers
from ondevice.model.loading.load import LoadedModel, load_model
from ondevice.model.tokenizer import Tokenizer
from ondevice_bench.quality.sentence_encoder import SentenceEncoder

# Their layers keep more than slots of the pot.
STATEFUL = (
    "gemma3_text", "gemma4_text", "gemma4_unified_text", "qwen3_5_text", "lfm2", "lfm3", "gpt_oss", "granitemoehybrid",
)  # fmt: skip
FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "phi3", "gemma2", "smollm3", "ministral3", "granite")

CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
BYTE_SPECIALS = ("<|bos|>", "<|im_start|>", "<|im_end|>", "<|endoftext|>")  # ids 256..259

_CLASSES = {
    "llama": ("LlamaConfig", "LlamaForCausalLM"),
    "mistral": ("MistralConfig", "MistralForCausalLM"),
    "qwen2": ("Qwen2Config", "Qwen2ForCausalLM"),
    "qwen3": ("Qwen3Config", "Qwen3ForCausalLM"),
    "phi3": ("Phi3Config", "Phi3ForCausalLM"),
    "gemma2": ("Gemma2Config", "Gemma2ForCausalLM"),
    "smollm3": ("SmolLM3Config", "SmolLM3ForCausalLM"),
    "ministral3": ("Ministral3Config", "Ministral3ForCausalLM"),
    "gemma3_text": ("Gemma3TextConfig", "Gemma3ForCausalLM"),
    "gemma4_text": ("Gemma4TextConfig", "Gemma4ForCausalLM"),
    "gemma4_unified_text": ("Gemma4UnifiedTextConfig", "Gemma4UnifiedForCausalLM"),
    "qwen3_5_text": ("Qwen3_5TextConfig", "Qwen3_5ForCausalLM"),
    "lfm2": ("Lfm2Config", "Lfm2ForCausalLM"),
    "lfm3": ("Lfm3Config", "Lfm3ForCausalLM"),
    "gpt_oss": ("GptOssConfig", "GptOssForCausalLM"),
    "granite": ("GraniteConfig", "GraniteForCausalLM"),
    "granitemoehybrid": ("GraniteMoeHybridConfig", "GraniteMoeHybridForCausalLM"),
}
_TWO_ROPES = {
    "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
    "full_attention": {"rope_type": "proportional", "rope_theta": 10_000.0, "partial_rotary_factor": 0.5},
}
# Small caps and windows, so that short test inputs reach them.
_FAMILY_FIELDS: dict[str, dict[str, Any]] = {
    "mistral": {"sliding_window": None},
    "gemma3_text": {
        "sliding_window": 24,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"],
        "num_hidden_layers": 4,
        "query_pre_attn_scalar": 24,
        "rope_parameters": {
            "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
            "full_attention": {"rope_type": "linear", "rope_theta": 10_000.0, "factor": 2.0},
        },
    },
    "gemma4_text": {
        "sliding_window": 24,
        "layer_types": ["sliding_attention", "full_attention"] * 3,
        "num_hidden_layers": 6,
        "num_kv_shared_layers": 2,
        "global_head_dim": 32,
        "hidden_size_per_layer_input": 32,
        "vocab_size_per_layer_input": 260,
        "use_double_wide_mlp": True,
        "final_logit_softcapping": 10.0,
        "rope_parameters": _TWO_ROPES,
    },
    "gemma4_unified_text": {
        "sliding_window": 24,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"],
        "num_hidden_layers": 4,
        "attention_k_eq_v": True,
        "num_global_key_value_heads": 1,
        "global_head_dim": 32,
        "rope_parameters": _TWO_ROPES,
    },
    "qwen3_5_text": {
        "layer_types": ["linear_attention", "full_attention", "linear_attention", "full_attention"],
        "num_hidden_layers": 4,
        "linear_key_head_dim": 16,
        "linear_value_head_dim": 16,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10_000.0,
            "partial_rotary_factor": 0.5,
            "mrope_section": [2, 1, 1],
        },
    },
    "lfm2": {
        "layer_types": ["conv", "full_attention", "conv", "full_attention"],
        "num_hidden_layers": 4,
        "block_auto_adjust_ff_dim": False,
    },
    "lfm3": {
        "layer_types": ["conv", "full_attention", "sliding_attention", "full_attention"],
        "num_hidden_layers": 4,
        "sliding_window": 24,
        "rope_parameters": _TWO_ROPES,
    },
    "gpt_oss": {
        "layer_types": ["sliding_attention", "full_attention"] * 2,
        "num_hidden_layers": 4,
        "sliding_window": 24,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "swiglu_limit": 1.0,
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": 10_000.0,
            "factor": 8.0,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "truncate": False,
            "original_max_position_embeddings": 48,
        },
    },
    "granite": {
        "embedding_multiplier": 3.0,
        "attention_multiplier": 0.2,
        "residual_multiplier": 0.6,
        "logits_scaling": 2.0,
    },
    "granitemoehybrid": {
        "layer_types": ["linear_attention", "full_attention"] * 2,
        "num_hidden_layers": 4,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "shared_intermediate_size": 96,
        "mamba_n_heads": 8,
        "mamba_n_groups": 2,
        "mamba_d_state": 16,
        "mamba_chunk_size": 32,
        "embedding_multiplier": 3.0,
        "attention_multiplier": 0.2,
        "residual_multiplier": 0.6,
        "logits_scaling": 2.0,
    },
    "smollm3": {"no_rope_layer_interval": 2},
    "ministral3": {
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": 10_000.0,
            "factor": 8.0,
            "original_max_position_embeddings": 48,
            "max_position_embeddings": 384,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "mscale_all_dim": 1.0,
            "mscale": 1.0,
            "llama_4_scaling_beta": 0.5,
        },
    },
    "gemma2": {
        "sliding_window": 32,
        "attn_logit_softcapping": 3.0,
        "final_logit_softcapping": 10.0,
        "query_pre_attn_scalar": 24,
    },
}


def tiny_config(
    family: str,
    *,
    num_layers: int = 3,
    num_heads: int = 4,
    num_kv_heads: int = 2,
    head_dim: int = 16,
    vocab_size: int = 260,
    max_positions: int = 512,
    **overrides: Any,
) -> Any:
    """The transformers config of a tiny model; `overrides` are fields of that config class."""
    fields: dict[str, Any] = {
        "vocab_size": vocab_size,
        "hidden_size": num_heads * head_dim,
        "intermediate_size": 3 * num_heads * head_dim,
        "num_hidden_layers": num_layers,
        "num_attention_heads": num_heads,
        "num_key_value_heads": num_kv_heads,
        "max_position_embeddings": max_positions,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0},
        "bos_token_id": 256,
        "eos_token_id": 258,
        "pad_token_id": 259,
    }
    if family not in ("qwen2", "phi3"):  # those two derive it from hidden_size
        fields["head_dim"] = head_dim
    if family == "phi3":
        fields["original_max_position_embeddings"] = max_positions
    fields |= deepcopy(_FAMILY_FIELDS.get(family, {})) | overrides  # transformers may write into what it is given
    return getattr(transformers, _CLASSES[family][0])(**fields)


def tiny_model(family: str, *, seed: int = 0, dtype: torch.dtype = torch.float32, **fields: Any) -> Any:
    """A causal LM of `family` with random weights, in eval mode, without gradients, eager attention.

    The same arguments give the same weights; `fields` are those of `tiny_config`, as `sliding_window=32` for Mistral,
    `tie_word_embeddings=True`, `rope_parameters={...}`, `attention_bias=True` for Llama.
    """
    config = tiny_config(family, **fields)
    config._attn_implementation = "eager"  # the one path that honours soft-capping and every mask
    model = getattr(transformers, _CLASSES[family][1])(config)
    _randomize_(model, seed)
    return model.to(dtype).eval().requires_grad_(False)


@torch.no_grad()
def _randomize_(model: Any, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if "embed_tokens" in name:
            parameter.copy_(0.5 * noise)
        elif parameter.dim() == 2:  # (out, in)
            gain = 3.0 if "lm_head" in name else 1.5
            parameter.copy_(gain * noise / parameter.shape[1] ** 0.5)
        elif "experts" in name and parameter.dim() == 3:  # (experts, in, out), or (experts, out, in)
            parameter.copy_(1.5 * noise / min(parameter.shape[1:]) ** 0.5)
        elif parameter.dim() == 3:  # of a convolution, (channels, 1, kernel)
            parameter.copy_(1.5 * noise / parameter.shape[2] ** 0.5)
        elif name.endswith(("bias", "A_log")):
            parameter.copy_(0.5 * noise)
        elif name.endswith("sinks"):
            parameter.copy_(6 + noise)
        else:  # norm weights: near their initial value (1, or 0 in Gemma), but not equal to it
            parameter.add_(0.2 * noise)
    for module in model.modules():
        if getattr(module, "scaling", None) == 1.0:  # the norm of queries does that, in Gemma 4
            module.q_norm.weight.mul_(module.head_dim**-0.5)
        if hasattr(module, "layer_scalar"):
            module.layer_scalar.fill_(0.8)


def byte_tokenizer(*, chat_template: str | None = CHAT_TEMPLATE) -> Tokenizer:
    """One token per UTF-8 byte: ids 0..255 are the byte values, 256..259 are `BYTE_SPECIALS`."""
    return Tokenizer(byte_backend(chat_template=chat_template))


def byte_backend(*, chat_template: str | None = CHAT_TEMPLATE) -> Any:
    """The transformers tokenizer of `byte_tokenizer`."""
    backend = Backend(models.BPE(vocab={byte_letter(byte): byte for byte in range(256)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in BYTE_SPECIALS])
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token="<|bos|>",
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        chat_template=chat_template,
        clean_up_tokenization_spaces=False,
    )


@functools.cache
def byte_letter(byte: int) -> str:
    """The printable letter by which byte-level BPE writes a byte (GPT-2's table)."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    if byte in printable:
        return chr(byte)
    return chr(256 + [other for other in range(256) if other not in printable].index(byte))


@functools.cache
def default_model() -> LoadedModel:
    """The smallest model on the CPU in float32, loaded once per test run; fetched on the very first."""
    return load_model(device="cpu", dtype="float32")


def save_checkpoint(model: Any, folder: Path, *, chat_template: str | None = CHAT_TEMPLATE) -> Path:
    """Write `model` with the byte tokenizer as a checkpoint folder; returns the folder."""
    model.save_pretrained(folder)
    byte_backend(chat_template=chat_template).save_pretrained(folder)
    return folder


def tiny_loaded(
    family: str = "llama", *, chat_template: str | None = CHAT_TEMPLATE, **model_fields: Any
) -> LoadedModel:
    """A tiny model as `load_model` returns it, with the byte tokenizer; takes the fields of `tiny_model`."""
    model = tiny_model(family, **model_fields)
    tokenizer = byte_tokenizer(chat_template=chat_template)
    return LoadedModel(
        model=model,
        tokenizer=tokenizer,
        name=f"tiny-{family}",
        device=torch.device("cpu"),
        dtype=model.dtype,
        quantization="none",
        fingerprint=f"tiny-{family}-{model.config.num_hidden_layers}-{model_fields.get('seed', 0)}",
        max_positions=model.config.max_position_embeddings,
        notice="",
    )


def logits_of(model: Any, ids: torch.Tensor) -> torch.Tensor:
    """(1, n, vocab_size) of a model's own pass here, which a skeleton has as well."""
    decoder = Decoder(model)
    return decoder.head.logits(decoder.forward(ids, decoder.new_pot(64)).hidden_states)


def plain_config(**fields: Any) -> EngineConfig:
    """Settings of an engine without a host tier, with heads that hold equally many tokens in the model's type and with
    plain answers, where `fields`, as those of `EngineConfig`, do not say otherwise."""
    pot = fields.get("pot", PotConfig())
    if pot.slot_shares == "auto":
        pot = replace(pot, slot_shares="even")
    if pot.kv_dtype == "auto":
        pot = replace(pot, kv_dtype="model")
    fields["pot"] = pot
    return EngineConfig(**{"tier": TierConfig(budget_bytes=0), "generation": plain_generation(), **fields})


def plain_generation(*values: Any, **fields: Any) -> GenerationConfig:
    """Answers from the pot alone to questions as they are, which go on as the model wants; `fields` as those of
    `GenerationConfig`."""
    return GenerationConfig(*values, **{"grounded": False, "stops_loops": False, "num_passage_tokens": 0, **fields})


def tokenised(document: Document, encode: Encode) -> DocumentTokens:
    """All tokens of a document."""
    tokens = DocumentTokens(document, encode)
    for _ in tokens.read_pages():
        pass
    return tokens


def tokens_of(*page_sizes: int) -> DocumentTokens:
    """Parts 1, 2, ... of so many tokens each, a letter for each."""
    pages = tuple(Page(number, "x" * size) for number, size in enumerate(page_sizes, 1))
    return tokenised(Document("letters.txt", "txt", "part", pages, len(pages), sum(page_sizes)), by_letter)


def by_letter(text: str) -> tuple[Int32Array, Int32Array]:
    """A token a character."""
    starts = np.arange(len(text), dtype=np.int32)
    return starts, np.stack((starts, starts + 1), axis=1)


_ENCODER_SIZES = {
    "vocab_size": 64, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32,
}  # fmt: skip


def tiny_encoder_files() -> dict[str, bytes]:
    """The files of a sentence encoder with random weights, by name; it knows letters and a few words."""
    model = transformers.BertModel(transformers.BertConfig(**_ENCODER_SIZES), add_pooling_layer=False)
    generator = torch.Generator().manual_seed(0)
    state = model.state_dict()
    weights = {name: torch.randn(tensor.shape, generator=generator) for name, tensor in state.items()
               if tensor.is_floating_point()}  # fmt: skip
    words = [
        "[PAD]",
        "[UNK]",
        "the",
        "lamp",
        "keeper",
        "lit",
        "at",
        "dusk",
        "sea",
        "word",
        "text",
        *map(str, range(40)),
    ]
    backend = Backend(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    return {"model.safetensors": save(weights), "tokenizer.json": backend.to_str().encode()}


def tiny_encoder() -> SentenceEncoder:
    """The sentence encoder of `tiny_encoder_files`."""
    files = tiny_encoder_files()
    return SentenceEncoder(load(files["model.safetensors"]), files["tokenizer.json"].decode(), **_ENCODER_SIZES)
