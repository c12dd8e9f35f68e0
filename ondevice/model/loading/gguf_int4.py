"""Weights of a GGUF file on a GPU: those of four bits as they are stored (`kernels.int4`), all others in bfloat16."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ondevice.kernels.int4 import int4_bytes, suits_int4
from ondevice.model.loading.gguf_blocks import INT4_TYPES, ROWS_AT_ONCE, dequantize_rows, int4_rows
from ondevice.model.loading.gguf_file import GgufFile
from ondevice.model.loading.gguf_packed import EMBEDDING, HEAD, PackedStore, StoredRows
from ondevice.model.packed_modules import PackedLinear

_DTYPE = torch.bfloat16


class Int4Store(PackedStore):
    """A store on a device."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def vector(self, numbers: Tensor) -> Tensor:
        return numbers.to(self._device, _DTYPE)

    def linear(
        self, name: str, raw: Callable[[], Tensor], kind: int, num_columns: int, bias: Tensor | None
    ) -> nn.Module:
        rows = raw()
        if kind in INT4_TYPES and suits_int4(rows.shape[0], num_columns):
            return PackedLinear(int4_rows(rows.to(self._device), kind, num_columns), bias)
        return self._plain(self._wide(rows, kind, num_columns), bias)

    def embedding(self, rows: StoredRows) -> nn.Module:
        weight = self._wide(torch.from_numpy(np.array(rows.data)), rows.kind, rows.shape[1])
        return nn.Embedding.from_pretrained(weight, freeze=True)

    def head(self, raw: Callable[[], Tensor], kind: int, num_columns: int, embedding: Any) -> nn.Module:
        weight = self._wide(raw(), kind, num_columns) if embedding is None else embedding.weight
        return self._plain(weight, None)

    def finish(self, model: Any) -> None:
        model.to(self._device)  # the buffers

    def _plain(self, weight: Tensor, bias: Tensor | None) -> nn.Module:
        linear = nn.Linear(weight.shape[1], weight.shape[0], bias=False, device="meta")
        linear.weight = weight if isinstance(weight, nn.Parameter) else nn.Parameter(weight, requires_grad=False)
        linear.bias = None if bias is None else nn.Parameter(bias, requires_grad=False)  # type: ignore[assignment]
        return linear

    def _wide(self, raw: Tensor, kind: int, num_columns: int) -> Tensor:
        """(num_rows, num_columns) on the device."""
        out = torch.empty(raw.shape[0], num_columns, dtype=_DTYPE, device=self._device)
        for rows, some in zip(raw.split(ROWS_AT_ONCE), out.split(ROWS_AT_ONCE), strict=True):
            some.copy_(dequantize_rows(rows, kind, num_columns))
        return out


def int4_gguf_bytes(gguf: GgufFile) -> int:
    """Memory that `Int4Store` takes for a file for which `can_pack` holds."""
    total = 0
    for tensor in gguf.tensors:
        is_product = tensor.name not in (EMBEDDING, HEAD)
        is_four = is_product and tensor.kind in INT4_TYPES and suits_int4(tensor.shape[0], tensor.shape[1])
        total += int4_bytes(prod(tensor.shape)) if is_four else prod(tensor.shape) * _DTYPE.itemsize
    return total
