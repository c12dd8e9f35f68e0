"""Weights of a GGUF file on a GPU: those of four bits as they are stored (`kernels.int4`), all others in bfloat16."""

from __future__ import annotations

from math import prod

import torch
from torch import Tensor, nn

from ondevice.kernels.int4 import int4_bytes, suits_int4
from ondevice.model.families.gguf_fields import EMBEDDING, HEAD, OWN_EMBEDDING
from ondevice.model.loading.gguf_blocks import INT4_TYPES, int4_rows
from ondevice.model.loading.gguf_file import GgufFile, GgufTensor
from ondevice.model.loading.gguf_weights import LM_HEAD, DenseStore, StoredMatrix
from ondevice.model.packed_modules import PackedLinear

_DTYPE = torch.bfloat16


class Int4Store(DenseStore):
    """A store on a device."""

    def __init__(self, device: torch.device) -> None:
        super().__init__(device, _DTYPE)

    def linear(self, name: str, stored: StoredMatrix, bias: Tensor | None) -> nn.Module:
        if name == LM_HEAD or not _is_int4(stored.tensor):
            return super().linear(name, stored, bias)
        weight = int4_rows(stored.raw().to(self._device), stored.kind, stored.shape[1])
        return PackedLinear(weight, bias, None if stored.inputs is None else stored.inputs.to(self._device))


def int4_gguf_bytes(gguf: GgufFile) -> int:
    """Memory that `Int4Store` takes for a file."""
    sizes = ((tensor, prod(tensor.shape)) for tensor in gguf.tensors)
    return sum(int4_bytes(size) if _is_int4(tensor) else size * _DTYPE.itemsize for tensor, size in sizes)


def _is_int4(tensor: GgufTensor) -> bool:
    is_product = len(tensor.shape) == 2 and tensor.name not in (EMBEDDING, OWN_EMBEDDING, HEAD)
    return is_product and tensor.kind in INT4_TYPES and suits_int4(tensor.shape[0], tensor.shape[1])
