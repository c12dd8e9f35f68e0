"""Modules for a transformers model whose weights stay quantised: a linear layer, an embedding, and experts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from torch import Tensor, nn

from ondevice.kernels.int4 import Int4Weight
from ondevice.kernels.packed import PackedWeight
from ondevice.kernels.projection import project
from ondevice.model.mixture import Op, mixture

_T = TypeVar("_T")
EXPERT_WEIGHTS = ("gate_up_proj", "down_proj")  # as modules of transformers call those of all experts


class PackedLinear(nn.Module):
    """x @ weight.T + bias with a packed weight: for float32 on a CPU, or in four bits for bfloat16 on a GPU.

    Attributes:
        weight: no parameter of the module: nothing moves or casts it.
        bias: (out_features,) of the activations' type, or None.
        inputs: (in_features,) int64, the input of each column; None: its own.
        rows: of the product that are its own, where the weight is shared; None: all.
    """

    def __init__(
        self, weight: PackedWeight | Int4Weight, bias: Tensor | None = None, inputs: Tensor | None = None
    ) -> None:
        super().__init__()
        self.weight, self.inputs = weight, inputs
        self.rows: slice | None = None
        self.bias = None if bias is None else nn.Parameter(bias, requires_grad=False)
        self.out_features, self.in_features = weight.shape

    def share(self, weight: PackedWeight | Int4Weight, start: int) -> None:
        """Take the rows from `start` on of a weight that holds others', too, instead of its own."""
        self.weight, self.rows = weight, slice(start, start + self.out_features)

    def forward(self, x: Tensor) -> Tensor:
        if self.inputs is not None:
            x = x[..., self.inputs]
        if self.rows is None:
            return project(x, self.weight, self.bias)
        out = project(x, self.weight)[..., self.rows]
        return out if self.bias is None else out + self.bias


class PackedEmbedding(nn.Module):
    """An embedding that dequantises the rows that are asked for.

    Args:
        gather: rows as they are stored, ids (n,) int64 -> (n, width) float32.
        like: the embedding whose rows they are; those of Gemma multiply what comes out.
    """

    def __init__(self, gather: Callable[[Tensor], Tensor], like: nn.Embedding) -> None:
        super().__init__()
        self._gather, self._scale = gather, getattr(like, "scalar_embed_scale", 1.0)
        self.num_embeddings, self.embedding_dim = like.num_embeddings, like.embedding_dim

    def forward(self, ids: Tensor) -> Tensor:
        return self._gather(ids.flatten()).view(*ids.shape, self.embedding_dim) * self._scale


class SeparateExperts(nn.Module):
    """Experts with a linear module for each projection of each, where transformers has one tensor for all.

    Args:
        gate_up, down: of each expert, both with weights (out_features, in_features).
        activate: what lies between them.
    """

    def __init__(self, gate_up: Iterable[nn.Module], down: Iterable[nn.Module], activate: Op) -> None:
        super().__init__()
        self.gate_up, self.down, self._activate = nn.ModuleList(gate_up), nn.ModuleList(down), activate

    def forward(self, tokens: Tensor, taken: Tensor, weights: Tensor) -> Tensor:
        """As `mixture`, of the arguments that transformers' modules give."""
        return mixture(tokens, taken, weights, [*self.gate_up], [*self.down], self._activate)


def separate_experts(
    module: nn.Module, own: dict[str, Tensor], linear: Callable[[Tensor, Tensor | None], nn.Module]
) -> SeparateExperts:
    """The experts of a module of transformers.

    Args:
        own: its weights by name, of three dimensions, and biases.
        linear: makes a module of a weight (out_features, in_features) and its bias.
    """
    gate_up, down = linears_of(module, own, linear)
    return SeparateExperts(gate_up, down, module._apply_gate)  # type: ignore[arg-type]


def linears_of(module: Any, own: Mapping[str, Tensor], linear: Callable[[Tensor, Tensor | None], _T]) -> list[list[_T]]:
    """Both projections of each expert; as `separate_experts`."""
    found = list[list[_T]]()
    for name in EXPERT_WEIGHTS:
        weights = own[name].transpose(1, 2) if module.is_transposed else own[name]
        biases = own.get(f"{name}_bias", [None] * len(weights))
        found.append([linear(weight, bias) for weight, bias in zip(weights, biases, strict=True)])
    return found


def holds_experts(module: nn.Module) -> bool:
    """True for a module of transformers with the weights of all experts of a layer."""
    return all(isinstance(getattr(module, name, None), nn.Parameter) for name in EXPERT_WEIGHTS)


def stored_parts(module: nn.Module) -> dict[str, Tensor]:
    """The weights of a module's own that files store, by name: parameters, and buffers that are no products."""
    buffers = (one for one in module.named_buffers(recurse=False) if one[0] not in module._non_persistent_buffers_set)
    return {**dict(module.named_parameters(recurse=False)), **dict(buffers)}


def replace_module(model: Any, name: str, module: nn.Module) -> None:
    """Put a module in the place of another."""
    parent, _, last = name.rpartition(".")
    setattr(model.get_submodule(parent), last, module)


def set_weights(module: nn.Module, weights: dict[str, Tensor]) -> None:
    """Give a module weights that nobody trains, in place of its own."""
    for part, weight in weights.items():
        setattr(module, part, weight if isinstance(weight, nn.Parameter) else nn.Parameter(weight, requires_grad=False))
