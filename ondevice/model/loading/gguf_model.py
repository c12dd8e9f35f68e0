"""A GGUF file as a model: its header, its configuration and its tokenizer; `gguf_weights` has the rest.

Llama, Qwen2 and Qwen3 with the usual tokenizers are known here; transformers reads the others, which takes half a
minute, once: what was made of a file is kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from ondevice.errors import ModelError
from ondevice.model.families import FAMILIES, gguf_families, named
from ondevice.model.families.gguf_fields import fields_of_all
from ondevice.model.loading._transformers import empty_model, transformers
from ondevice.model.loading.gguf_blocks import BLOCK_TYPES
from ondevice.model.loading.gguf_file import GgufFile, read_header
from ondevice.model.loading.gguf_packed import PackedStore, int4_gguf_bytes, packed_bytes
from ondevice.model.loading.gguf_tokenizer import TOKENS, GgufTokenizer, is_known
from ondevice.model.loading.gguf_weights import DenseStore, fill, numbers_of
from ondevice.model.loading.kept_tiles import Kept, keep_tiles, kept, kept_header
from ondevice.model.loading.progress import Progress
from ondevice.model.loading.skeleton import skeleton

# What transformers and `gguf` raise where they cannot read a file; NotImplementedError: of a kind of numbers that they
# do not know.
_UNREADABLE = (ValueError, KeyError, NotImplementedError, RuntimeError, ImportError, OSError)
_PLAIN = frozenset(("llama", "qwen2", "qwen3", "smollm3"))
# Metadata that says nothing else than the config does.
_KEYS = {
    "context_length", "embedding_length", "block_count", "feed_forward_length", "rope.dimension_count",
    "rope.freq_base", "attention.head_count", "attention.head_count_kv", "attention.layer_norm_rms_epsilon",
    "attention.key_length", "attention.value_length", "vocab_size",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class GgufSummary:
    """Facts of the header.

    Attributes:
        family: of `FAMILIES`.
        num_parameters: values in all tensors.
        is_quantized: it has weights in a type that is multiplied as it is stored.
        packed_bytes: memory of its weights on a CPU as they are stored.
        int4_bytes: memory that they take on a GPU, those of four bits as they are stored.
        header: all of it.
    """

    family: str
    num_parameters: int
    is_quantized: bool
    packed_bytes: int
    int4_bytes: int
    header: GgufFile


def inspect_gguf(path: Path) -> GgufSummary:
    """Read the header and check that the file is whole and of a known family.

    Raises:
        ModelError: it is not.
    """
    try:
        gguf, size = kept_header(path) or read_header(path), path.stat().st_size
        is_cut = any(tensor.offset + tensor.num_bytes > size for tensor in gguf.tensors)
    except (OSError, ValueError) as error:
        raise ModelError(f"The GGUF file cannot be read: {error}", where=str(path), fix="Fetch it again.") from error
    if is_cut:
        raise ModelError("The GGUF file is cut short", where=str(path), fix="Fetch it again.")
    architecture, families = str(gguf.metadata.get("general.architecture")), gguf_families()
    if architecture not in families:
        raise ModelError(
            f"GGUF models of type {architecture!r} cannot be used",
            where=str(path),
            fix=f"Choose one of these families: {', '.join(sorted(families))}.",
        )
    num_parameters = sum(prod(tensor.shape) for tensor in gguf.tensors)
    is_quantized = any(tensor.kind in BLOCK_TYPES for tensor in gguf.tensors)
    num_bytes = packed_bytes(gguf), int4_gguf_bytes(gguf)
    return GgufSummary(families[architecture], num_parameters, is_quantized, *num_bytes, gguf)


def outline_gguf(path: Path, summary: GgufSummary, dtype: torch.dtype) -> tuple[Any, GgufTokenizer]:
    """The model without its weights, and the tokenizer; raises as `load_gguf`."""
    try:
        config, tokenizer = _about(path, summary, kept(path))
        return _empty(config, summary, dtype), tokenizer
    except _UNREADABLE as error:
        raise _unusable(path, error) from error


def load_gguf(
    path: Path, summary: GgufSummary, report: Progress, store: DenseStore | None = None
) -> tuple[Any, GgufTokenizer]:
    """The model and its tokenizer.

    Args:
        store: where its weights go; None: packed, on the CPU.

    Raises:
        ModelError: the file cannot be used.
    """
    gguf, there = summary.header, kept(path)
    try:
        config, tokenizer = _about(path, summary, there, report)
        is_plain = isinstance(config, SimpleNamespace)
        model = _empty(config, summary, as_skeleton=is_plain and store is None)
        if store is None:
            own = None if is_plain else config.to_dict()
            store = PackedStore(there, partial(keep_tiles, path, gguf, tokenizer, own, report))
        fill(model, path, gguf, FAMILIES[summary.family].stored, store, report)
    except _UNREADABLE as error:
        raise _unusable(path, error) from error
    return model, tokenizer


def _is_plain(gguf: GgufFile) -> bool:
    """True if configuration and tokenizer of a file are known without transformers."""
    family = gguf.metadata["general.architecture"]
    if family not in _PLAIN or not is_known(gguf.metadata):
        return False
    keys = {key.removeprefix(f"{family}.") for key in gguf.metadata if key.startswith(f"{family}.")}
    return keys <= _KEYS and not any(tensor.name.startswith("rope_") for tensor in gguf.tensors)


def config_of(gguf: GgufFile) -> SimpleNamespace:
    """The fields of transformers' configuration, of a file for which `_is_plain` holds."""
    family, (own, shapes) = gguf.metadata["general.architecture"], _own_of(gguf)
    found = fields_of_all(own, shapes)
    num_heads = found["num_attention_heads"]
    found |= {
        "intermediate_size": own["feed_forward_length"],
        "num_key_value_heads": own.get("attention.head_count_kv", num_heads),
        "head_dim": own.get("attention.key_length", found["hidden_size"] // num_heads),
        "rope_parameters": {"rope_type": "default", "rope_theta": float(own.get("rope.freq_base", 10_000.0))},
        "hidden_act": "silu",
        "tie_word_embeddings": False,  # the head is packed, the embedding stays in the file
        "attention_bias": "blk.0.attn_q.bias" in shapes,
        "bos_token_id": own.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": own.get("tokenizer.ggml.eos_token_id"),
        "pad_token_id": own.get("tokenizer.ggml.padding_token_id"),
    }
    config = SimpleNamespace(**named(family), **found)
    FAMILIES[family].complete(config, {})
    return config


def _own_of(gguf: GgufFile) -> tuple[dict[str, Any], dict[str, tuple[int, ...]]]:
    """Metadata without the name of the family, and the shapes of the tensors."""
    prefix = f"{gguf.metadata['general.architecture']}."
    own = {key.removeprefix(prefix): value for key, value in gguf.metadata.items()}
    return own, {tensor.name: tensor.shape for tensor in gguf.tensors}


def _about(
    path: Path, summary: GgufSummary, there: Kept | None, report: Progress | None = None
) -> tuple[Any, GgufTokenizer]:
    """The configuration and the tokenizer: kept ones, or made by us or by transformers."""
    gguf = summary.header
    config = config_of(gguf) if _is_plain(gguf) else None
    if there is not None:
        tokenizer = GgufTokenizer(gguf.metadata, there.tokenizer, there.rendered)
        return config or transformers.AutoConfig.for_model(**there.config), tokenizer
    whole = gguf if gguf.metadata[TOKENS] else read_header(path)  # what was kept is damaged since
    if config is None:
        if report is not None:
            report(f"Loading {path.name} (it takes longer this time)", None)
        config = _config(path, summary)
    if is_known(whole.metadata):
        return config, GgufTokenizer(whole.metadata)
    hf = transformers.AutoTokenizer.from_pretrained(**_where(path))
    return config, GgufTokenizer(whole.metadata, hf.backend_tokenizer.to_str())


def _config(path: Path, summary: GgufSummary) -> Any:
    """The model's configuration; raises what transformers does, or ValueError where metadata say what nobody reads."""
    family, (own, shapes) = FAMILIES[summary.family], _own_of(summary.header)
    own |= {
        tensor.name.removesuffix(".weight"): numbers_of(path, tensor).tolist()
        for tensor in summary.header.tensors
        if tensor.name.startswith("rope_")
    }
    if family.fields is not None:
        return transformers.AutoConfig.for_model(summary.family, **family.fields(own, shapes))
    config = transformers.AutoConfig.from_pretrained(**_where(path))
    family.complete(config, own)
    return config


def _where(path: Path) -> dict[str, Any]:
    return {"pretrained_model_name_or_path": path.parent, "gguf_file": path.name, "local_files_only": True}


def _empty(config: Any, summary: GgufSummary, dtype: torch.dtype = torch.float32, *, as_skeleton: bool = False) -> Any:
    """The model without its weights: of transformers, or its skeleton."""
    if as_skeleton:
        model = skeleton(config)
    else:
        is_plain = isinstance(config, SimpleNamespace)
        model = empty_model(transformers.AutoConfig.for_model(**vars(config)) if is_plain else config, dtype)
    model.generation_config.eos_token_id = summary.header.metadata.get("tokenizer.ggml.eos_token_id")
    return model


def _unusable(path: Path, error: Exception) -> ModelError:
    fix = "Take the model's safetensors version."
    return ModelError(f"The GGUF file cannot be used: {error}", where=str(path), fix=fix)
