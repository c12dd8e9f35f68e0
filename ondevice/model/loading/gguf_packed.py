"""A GGUF file as a model whose weights stay quantised, for a CPU.

The file is read tensor by tensor and packed as its types are (`kernels.packed`); of the embedding only the rows are
read that are asked for. Config and tokenizer come from the metadata. What this cannot do, `gguf_model` unpacks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ondevice.kernels.attention import prepare_attention
from ondevice.kernels.packed import TILE_ROWS, PackedWeight
from ondevice.kernels.projection import prepare_packed
from ondevice.model.families import gguf_families, named
from ondevice.model.loading._transformers import empty_model, transformers
from ondevice.model.loading.gguf_blocks import BLOCK_TYPES, dequantize_rows, pack_rows
from ondevice.model.loading.gguf_file import GgufFile, GgufTensor, read_header
from ondevice.model.loading.gguf_tokenizer import TOKENS, GgufTokenizer, is_known
from ondevice.model.loading.kept_tiles import Kept, keep_tiles, kept
from ondevice.model.loading.progress import Progress
from ondevice.model.loading.skeleton import skeleton
from ondevice.model.packed_modules import PackedEmbedding, PackedLinear, replace_module

_FLOAT32 = 0  # ggml's number
EMBEDDING, _NORM, HEAD = "token_embd.weight", "output_norm.weight", "output.weight"
_PARTS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_TURNED = {"attn_q": "head_count", "attn_k": "head_count_kv"}  # by llama.cpp, of Llama alone: see `halves_apart`
# Metadata that says nothing else than the config does.
_KEYS = {
    "context_length", "embedding_length", "block_count", "feed_forward_length", "rope.dimension_count",
    "rope.freq_base", "attention.head_count", "attention.head_count_kv", "attention.layer_norm_rms_epsilon",
    "attention.key_length", "attention.value_length", "vocab_size",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class StoredRows:
    """The rows of a tensor in a file that is mapped: only those asked for are read.

    Attributes:
        data: (num_rows, bytes of a row) uint8.
        kind: ggml's number of the quantisation type.
    """

    data: np.memmap
    kind: int
    shape: tuple[int, int]

    def gather(self, ids: Tensor) -> Tensor:
        """ids (n,) int64 -> (n, width) float32."""
        return dequantize_rows(torch.from_numpy(self.data[ids.numpy()]), self.kind, self.shape[1])


def packed_bytes(gguf: GgufFile) -> int:
    """Memory of the packed weights of a file for which `can_pack` holds: rows of an embedding stay in the file."""
    tensors = {tensor.name: tensor for tensor in gguf.tensors}
    if HEAD in tensors:
        tensors.pop(EMBEDDING, None)
    matrices = [tensor for tensor in tensors.values() if tensor.kind in BLOCK_TYPES]
    growth = {kind: _growth(kind) for kind in {tensor.kind for tensor in matrices}}
    return int(sum(tensor.num_bytes * growth.get(tensor.kind, 1.0) for tensor in tensors.values()))


def most_packed_bytes(file_bytes: int) -> int:
    """The same of a file that is not here, at most: as much as there, and a few float16 scales."""
    return int(1.1 * file_bytes)


def _growth(kind: int) -> float:
    """Packed bytes of a quantisation type over those in the file: two rows of scales may be one of products."""
    return smallest(kind).nbytes / (TILE_ROWS * BLOCK_TYPES[kind].num_bytes)


def smallest(kind: int) -> PackedWeight:
    """The smallest weight of a quantisation type."""
    block = BLOCK_TYPES[kind]
    return pack_rows(torch.zeros(TILE_ROWS, block.num_bytes, dtype=torch.uint8), kind, block.num_values)


def outline_packed(path: Path, gguf: GgufFile, dtype: torch.dtype) -> tuple[Any, GgufTokenizer]:
    """The model without its weights, and the tokenizer, of a file for which `can_pack` holds."""
    model = empty_model(transformers.AutoConfig.for_model(**vars(config_of(gguf))), dtype)
    model.generation_config.eos_token_id = gguf.metadata.get("tokenizer.ggml.eos_token_id")
    return model, _tokenizer(path, gguf, kept(path))


def _tokenizer(path: Path, gguf: GgufFile, kept: Kept | None) -> GgufTokenizer:
    if kept is not None:
        return GgufTokenizer(gguf.metadata, kept.tokenizer, kept.rendered)
    whole = gguf if gguf.metadata[TOKENS] else read_header(path)  # what was kept is damaged since
    return GgufTokenizer(whole.metadata)


class PackedStore:
    """The store of what is read of a file: on a CPU, packed as `kernels.packed` does; what was packed before is mapped.

    `raw` are rows as they are stored in the file, (num_rows, bytes of a row) uint8, `kind` is ggml's number of their
    type.

    Args:
        kept: of the file.
        keep: keeps the weights by name, with what else was made of the file.
    """

    def __init__(self, kept: Kept | None, keep: Callable[[Mapping[str, PackedWeight]], None]) -> None:
        self._kept, self._keep = {} if kept is None else kept.weights, keep

    def vector(self, numbers: Tensor) -> Tensor:
        """(n,) float32: of norms and biases."""
        return numbers

    def linear(
        self, name: str, raw: Callable[[], Tensor], kind: int, num_columns: int, bias: Tensor | None
    ) -> nn.Module:
        return PackedLinear(self._kept.get(name) or pack_rows(raw(), kind, num_columns), bias)

    def embedding(self, rows: StoredRows) -> nn.Module:
        return PackedEmbedding(rows)

    def head(self, raw: Callable[[], Tensor], kind: int, num_columns: int, embedding: nn.Module | None) -> nn.Module:
        """The head; `embedding` has the same weight, where there is one."""
        return self.linear(module_name(HEAD), raw, kind, num_columns, None)

    def finish(self, model: Any) -> None:
        """All is in its place."""
        config = model.config
        # Projections that are multiplied together follow each other, and then lie side by side when they are mapped.
        weights = {name: module.weight for name, module in model.named_modules() if isinstance(module, PackedLinear)}
        if not self._kept:
            self._keep(weights)
        prepare_packed(weights.values())
        prepare_attention(config.num_attention_heads, config.num_key_value_heads, config.head_dim, in_bfloat16=True)


def load_packed(
    path: Path, report: Progress, store: PackedStore | None = None, header: GgufFile | None = None
) -> tuple[Any, GgufTokenizer]:
    """The model and the tokenizer of a file for which `can_pack` holds.

    Args:
        store: where its weights go; None: packed, on the CPU, in a skeleton of the model.
        header: of the file, if it has been read.
    """
    gguf, there = header or read_header(path), kept(path)
    tokenizer, config = _tokenizer(path, gguf, there), config_of(gguf)
    if store is None:
        store, model = PackedStore(there, partial(keep_tiles, path, gguf, tokenizer, report)), skeleton(config)
    else:
        model = empty_model(transformers.AutoConfig.for_model(**vars(config)))
    tensors = {tensor.name: tensor for tensor in gguf.tensors}
    done, total = 0, sum(tensor.num_bytes for tensor in gguf.tensors)
    for name, tensor in tensors.items():
        if name.endswith(".bias") or name == HEAD:
            continue
        _place(model, path, tensor, tensors.get(name.replace(".weight", ".bias")), gguf.metadata, store)
        done += tensor.num_bytes
        report(f"Loading {path.name}", done / total)
    head = tensors.get(HEAD, tensors[EMBEDDING])
    tied = None if HEAD in tensors else model.model.embed_tokens
    model.lm_head = store.head(partial(_raw, path, head), head.kind, head.shape[1], tied)
    report(f"Loading {path.name}", 1.0)
    store.finish(model)
    model.generation_config.eos_token_id = gguf.metadata.get("tokenizer.ggml.eos_token_id")
    return model, tokenizer


def can_pack(gguf: GgufFile) -> bool:
    """True if `load_packed` knows everything that the file holds."""
    family = gguf.metadata.get("general.architecture")
    if family not in gguf_families(packed=True) or not is_known(gguf.metadata):
        return False
    keys = {key.removeprefix(f"{family}.") for key in gguf.metadata if key.startswith(f"{family}.")}
    return keys <= _KEYS and all(_is_known_tensor(tensor) for tensor in gguf.tensors)


def _is_known_tensor(tensor: GgufTensor) -> bool:
    part, _, ending = tensor.name.removeprefix("blk.").rpartition(".")
    if tensor.name not in (EMBEDDING, _NORM, HEAD) and part.partition(".")[2] not in _PARTS:
        return False
    is_vector = len(tensor.shape) == 1
    return ending in ("weight", "bias") and (tensor.kind == _FLOAT32 if is_vector else tensor.kind in BLOCK_TYPES)


def config_of(gguf: GgufFile) -> SimpleNamespace:
    """The fields of transformers' configuration."""
    fields, family = gguf.metadata, gguf.metadata["general.architecture"]

    def field(name: str, default: Any = None) -> Any:
        return fields.get(f"{family}.{name}", default)

    num_heads, hidden_size = field("attention.head_count"), field("embedding_length")
    shapes = {tensor.name: tensor.shape for tensor in gguf.tensors}
    return SimpleNamespace(
        **named(family),
        vocab_size=shapes[EMBEDDING][0],
        hidden_size=hidden_size,
        intermediate_size=field("feed_forward_length"),
        num_hidden_layers=field("block_count"),
        num_attention_heads=num_heads,
        num_key_value_heads=field("attention.head_count_kv", num_heads),
        head_dim=field("attention.key_length", hidden_size // num_heads),
        max_position_embeddings=field("context_length"),
        # Stored as float32 in the file: 9.999999747378752e-06 means 1e-05.
        rms_norm_eps=float(str(np.float32(field("attention.layer_norm_rms_epsilon")))),
        rope_parameters={"rope_type": "default", "rope_theta": float(field("rope.freq_base", 10_000.0))},
        hidden_act="silu",
        tie_word_embeddings=False,  # the head is packed, the embedding stays in the file
        attention_bias="blk.0.attn_q.bias" in shapes,
        bos_token_id=fields.get("tokenizer.ggml.bos_token_id"),
        eos_token_id=fields.get("tokenizer.ggml.eos_token_id"),
        pad_token_id=fields.get("tokenizer.ggml.padding_token_id"),
    )


def _place(
    model: Any, path: Path, tensor: GgufTensor, bias: GgufTensor | None, fields: dict[str, Any], store: PackedStore
) -> None:
    """Put a tensor, and the bias that goes with it, where the model keeps it."""
    if tensor.name == EMBEDDING:
        data = np.memmap(path, np.uint8, "r", tensor.offset, (tensor.shape[0], tensor.num_bytes // tensor.shape[0]))
        model.model.embed_tokens = store.embedding(StoredRows(data, tensor.kind, (tensor.shape[0], tensor.shape[1])))
        return
    name = module_name(tensor.name)
    if len(tensor.shape) == 1:
        model.get_submodule(name).weight = nn.Parameter(store.vector(vector(path, tensor)), requires_grad=False)
        return
    num_heads = num_turned(fields, tensor.name)
    own_bias = None if bias is None else store.vector(vector(path, bias))
    linear = store.linear(name, partial(_raw, path, tensor, num_heads), tensor.kind, tensor.shape[1], own_bias)
    replace_module(model, name, linear)


def num_turned(fields: dict[str, Any], name: str) -> int | None:
    """Heads of a tensor whose rows llama.cpp has in another order; None: they are in ours."""
    part = name.split(".")[-2]
    is_turned = fields["general.architecture"] == "llama" and part in _TURNED
    return fields[f"llama.attention.{_TURNED[part]}"] if is_turned else None


def module_name(name: str) -> str:
    """The module that a tensor belongs to, but for the embedding."""
    if name in (_NORM, HEAD):
        return {_NORM: "model.norm", HEAD: "lm_head"}[name]
    _, layer, part, _ = name.split(".")
    return f"model.layers.{layer}.{_PARTS[part]}"


def vector(path: Path, tensor: GgufTensor) -> Tensor:
    """The numbers of a tensor of one dimension, in float32 as it is stored."""
    return torch.from_numpy(np.fromfile(path, np.float32, tensor.shape[0], offset=tensor.offset))


def unpacked(path: Path, tensor: GgufTensor, fields: dict[str, Any]) -> Tensor:
    """All numbers of a tensor in float32, with rows in our order."""
    if len(tensor.shape) == 1:
        return vector(path, tensor)
    return dequantize_rows(_raw(path, tensor, num_turned(fields, tensor.name)), tensor.kind, tensor.shape[1])


def _raw(path: Path, tensor: GgufTensor, num_heads: int | None = None) -> Tensor:
    """(num_rows, bytes of a row) uint8; read, not mapped: what has been packed leaves memory."""
    raw = np.fromfile(path, np.uint8, tensor.num_bytes, offset=tensor.offset).reshape(tensor.shape[0], -1)
    return torch.from_numpy(raw if num_heads is None else halves_apart(raw, num_heads))


def halves_apart(rows: np.ndarray, num_heads: int) -> np.ndarray:
    """Undo llama.cpp's order of rotary dimensions: pairs side by side there, in two halves here."""
    pairs = rows.reshape(num_heads, rows.shape[0] // num_heads // 2, 2, -1)
    return pairs.swapaxes(1, 2).reshape(rows.shape)
