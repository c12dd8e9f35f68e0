"""Modules for a transformers model whose weights stay quantised: a linear layer and an embedding."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor, nn

from ondevice.kernels.packed import PackedWeight
from ondevice.kernels.projection import project


class PackedLinear(nn.Module):
    """x @ weight.T + bias with a packed weight, for float32 on a CPU.

    Attributes:
        weight: no parameter of the module: nothing moves or casts it.
        bias: (out_features,) float32, or None.
    """

    def __init__(self, weight: PackedWeight, bias: Tensor | None = None) -> None:
        super().__init__()
        self.weight = weight
        self.bias = None if bias is None else nn.Parameter(bias, requires_grad=False)
        self.out_features, self.in_features = weight.shape

    def forward(self, x: Tensor) -> Tensor:
        return project(x, self.weight, self.bias)


class QuantizedRows(Protocol):
    """The rows of an embedding as they are stored."""

    @property
    def shape(self) -> tuple[int, int]: ...

    def gather(self, ids: Tensor) -> Tensor:
        """ids (n,) int64 -> (n, width) float32."""
        ...


class PackedEmbedding(nn.Module):
    """An embedding that dequantises the rows that are asked for."""

    def __init__(self, rows: QuantizedRows) -> None:
        super().__init__()
        self.rows = rows
        self.num_embeddings, self.embedding_dim = rows.shape

    def forward(self, ids: Tensor) -> Tensor:
        return self.rows.gather(ids.flatten()).view(*ids.shape, self.embedding_dim)


def packed_bytes(model: nn.Module) -> int:
    """Bytes of all packed weights in memory; memory that modules share counts once."""
    storages = {
        part.data.untyped_storage().data_ptr(): part.data.untyped_storage().nbytes()
        for module in model.modules()
        if isinstance(module, PackedLinear)
        for part in module.weight.parts
    }
    return sum(storages.values())


def is_packed(model: nn.Module) -> bool:
    """Whether any of the weights are packed."""
    return any(isinstance(module, PackedLinear) for module in model.modules())
