"""The weights of a GGUF file in memory as they are stored.

For a CPU they are packed as their types are (`kernels.packed`); types that nobody packs are rounded to 8 bits, and of
the embedding only the rows are read that are asked for. On a GPU those of four bits are as they are stored
(`kernels.int4`), all others in bfloat16.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from ondevice.kernels.attention import prepare_attention
from ondevice.kernels.int4 import int4_bytes, suits_int4
from ondevice.kernels.packed import TILE_ROWS, PackedWeight, joined
from ondevice.kernels.projection import prepare_packed
from ondevice.kernels.rounding import GROUP_SIZE, quantize
from ondevice.model.families.common import attention_sizes
from ondevice.model.families.gguf_fields import EMBEDDING, HEAD, OWN_EMBEDDING
from ondevice.model.loading.gguf_blocks import BLOCK_TYPES, INT4_TYPES, int4_rows, pack_rows
from ondevice.model.loading.gguf_file import GgufFile, GgufTensor
from ondevice.model.loading.gguf_weights import LM_HEAD, DenseStore, StoredMatrix
from ondevice.model.loading.kept_tiles import Kept
from ondevice.model.packed_modules import PackedEmbedding, PackedLinear

_FEWEST = 1 << 20  # numbers in floating point: fewer stay so
_INT4_DTYPE = torch.bfloat16


class PackedStore(DenseStore):
    """A store that packs, and maps what was packed before.

    Args:
        kept: of the file.
        keep: keeps the weights by the names of their modules, with what else was made of the file.
    """

    def __init__(self, kept: Kept | None, keep: Callable[[Mapping[str, PackedWeight]], None]) -> None:
        super().__init__(torch.device("cpu"), torch.float32)
        self._kept, self._keep = {} if kept is None else kept.weights, keep

    def linear(self, name: str, stored: StoredMatrix, bias: Tensor | None) -> nn.Module:
        if not _is_packed(stored.tensors[0]):
            return super().linear(name, stored, bias)
        weight = self._kept.get(name)
        if stored.kind in BLOCK_TYPES:
            if weight is None:
                weight = pack_rows(stored.raw(), stored.kind, stored.shape[1], is_parted=name == LM_HEAD)
            return PackedLinear(weight, bias, stored.inputs)
        return PackedLinear(weight or joined([quantize(some, 8) for some in stored.numbers()]), bias)

    def embedding(self, module: nn.Embedding, stored: StoredMatrix) -> nn.Module:
        return PackedEmbedding(stored.mapped(), module)

    def finish(self, model: Any) -> None:
        # Projections that are multiplied together follow each other, and then lie side by side when they are mapped.
        weights = {name: module.weight for name, module in model.named_modules() if isinstance(module, PackedLinear)}
        if not self._kept:
            self._keep(weights)
        prepare_packed(weights.values())
        prepare_attention(*attention_sizes(model.config), in_bfloat16=True)


class Int4Store(DenseStore):
    """A store on a device."""

    def __init__(self, device: torch.device) -> None:
        super().__init__(device, _INT4_DTYPE)

    def linear(self, name: str, stored: StoredMatrix, bias: Tensor | None) -> nn.Module:
        if name == LM_HEAD or not _is_int4(stored.tensors[0]):
            return super().linear(name, stored, bias)
        weight = int4_rows(stored.raw().to(self._device), stored.kind, stored.shape[1])
        return PackedLinear(weight, bias, None if stored.inputs is None else stored.inputs.to(self._device))


def packed_bytes(gguf: GgufFile) -> int:
    """Memory that `PackedStore` takes for a file: rows of an embedding stay there."""
    tensors = {tensor.name: tensor for tensor in gguf.tensors}
    tensors.pop(OWN_EMBEDDING, None)
    if HEAD in tensors:
        tensors.pop(EMBEDDING, None)
    growth = {kind: _growth(kind) for kind in {tensor.kind for tensor in tensors.values()} & BLOCK_TYPES.keys()}
    return int(sum(_num_bytes(tensor, growth) for tensor in tensors.values()))


def int4_gguf_bytes(gguf: GgufFile) -> int:
    """Memory that `Int4Store` takes for a file."""
    sizes = ((tensor, prod(tensor.shape)) for tensor in gguf.tensors)
    return sum(int4_bytes(size) if _is_int4(tensor) else size * _INT4_DTYPE.itemsize for tensor, size in sizes)


def _is_int4(tensor: GgufTensor) -> bool:
    is_product = len(tensor.shape) > 1 and tensor.name not in (EMBEDDING, OWN_EMBEDDING, HEAD)
    return is_product and tensor.kind in INT4_TYPES and suits_int4(*tensor.shape[-2:])


def _num_bytes(tensor: GgufTensor, growth: dict[int, float]) -> float:
    if not _is_packed(tensor):
        return prod(tensor.shape) * 4
    bytes_of_8_bits = prod(tensor.shape) * (1 + 2 / GROUP_SIZE)
    return tensor.num_bytes * growth[tensor.kind] if tensor.kind in growth else bytes_of_8_bits


def _is_packed(tensor: GgufTensor) -> bool:
    if len(tensor.shape) < 2 or tensor.name.endswith(".bias"):  # that of experts has two dimensions
        return False
    matrix = tensor.shape[-2:]  # of experts one after the other
    return tensor.kind in BLOCK_TYPES or (prod(matrix) >= _FEWEST and matrix[1] % GROUP_SIZE == 0)


def _growth(kind: int) -> float:
    """Packed bytes of a quantisation type over those in the file: two rows of scales may be one of products."""
    return smallest(kind).nbytes / (TILE_ROWS * BLOCK_TYPES[kind].num_bytes)


def smallest(kind: int) -> PackedWeight:
    """The smallest weight of a quantisation type."""
    block = BLOCK_TYPES[kind]
    return pack_rows(torch.zeros(TILE_ROWS, block.num_bytes, dtype=torch.uint8), kind, block.num_values)
