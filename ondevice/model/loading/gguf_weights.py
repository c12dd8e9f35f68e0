"""The weights of a GGUF file, parameter by parameter, into a model that has none yet.

The `gguf` package knows how llama.cpp calls each; `families.as_stored` what its converter did to them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ondevice.model.families.as_stored import AsStored
from ondevice.model.families.gguf_fields import EMBEDDING, HEAD
from ondevice.model.loading.gguf_blocks import BLOCK_TYPES, ROWS_AT_ONCE, dequantize_rows
from ondevice.model.loading.gguf_file import GgufFile, GgufTensor
from ondevice.model.loading.progress import Progress
from ondevice.model.packed_modules import (
    EXPERT_WEIGHTS,
    SeparateExperts,
    holds_experts,
    replace_module,
    set_weights,
    stored_parts,
)

LM_HEAD = "lm_head"
_Tensors = tuple[GgufTensor, ...]  # that have the rows of one parameter, one after the other
_LAYER = re.compile(r"\.layers\.(\d+)\.")


@dataclass(frozen=True, slots=True)
class StoredMatrix:
    """A matrix in a file, (num_rows, num_columns).

    Attributes:
        tensors: have its rows, one after the other, all of one type.
        rows: where each row of the weight is among those; None: in the same place.
        inputs: the input that each of its columns is multiplied by; None: its own.
    """

    path: Path
    tensors: tuple[GgufTensor, ...]
    rows: Tensor | None = None
    inputs: Tensor | None = None

    @property
    def kind(self) -> int:
        """The quantisation type, by ggml's number."""
        return self.tensors[0].kind

    @property
    def shape(self) -> tuple[int, int]:
        return sum(tensor.shape[0] for tensor in self.tensors), prod(self.tensors[0].shape[1:])

    def raw(self) -> Tensor:
        """(num_rows, bytes of a row) uint8; read, not mapped: what has been packed leaves memory."""
        parts = [_bytes_of(self.path, tensor).view(tensor.shape[0], -1) for tensor in self.tensors]
        raw = parts[0] if len(parts) == 1 else torch.cat(parts)
        return raw if self.rows is None else raw[self.rows]

    def mapped(self) -> Callable[[Tensor], Tensor]:
        """Gives its rows, ids (n,) int64 -> (n, num_columns) float32: only those asked for are read from the file."""
        (tensor,) = self.tensors
        size = self.shape[0], tensor.num_bytes // self.shape[0]
        data = np.asarray(np.memmap(self.path, np.uint8, "r", tensor.offset, size))  # plain arrays are indexed sooner
        return lambda ids: unpacked(torch.from_numpy(data[ids.numpy()]), self.kind, self.shape[1])

    def numbers(self) -> Iterator[Tensor]:
        """Its rows in float32, some at a time, columns in the order of inputs."""
        order = None if self.inputs is None else self.inputs.argsort()
        for some in self.raw().split(ROWS_AT_ONCE):
            numbers = unpacked(some, self.kind, self.shape[1])
            yield numbers if order is None else numbers[:, order]


class DenseStore:
    """The place of the weights of a file: a device, in one floating-point type.

    A head that is the embedding shares its weight.
    """

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        self._device, self._dtype = device, dtype
        self._embedded: tuple[GgufTensor, Tensor] | None = None

    def parameter(self, numbers: Tensor) -> Tensor:
        """A parameter that is no product's, of its numbers in float32."""
        return numbers.to(self._device, self._dtype)

    def linear(self, name: str, stored: StoredMatrix, bias: Tensor | None) -> nn.Module:
        tensor, weight = self._embedded or (None, None)
        if weight is None or tensor is not stored.tensors[0]:
            weight = self._dense(stored)
        linear = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, device="meta")
        set_weights(linear, {"weight": weight} if bias is None else {"weight": weight, "bias": bias})
        return linear

    def embedding(self, module: nn.Embedding, stored: StoredMatrix) -> nn.Module:
        set_weights(module, {"weight": self._dense(stored)})
        self._embedded = stored.tensors[0], module.weight
        return module

    def finish(self, model: Any) -> None:
        """All is in its place, but for the buffers."""
        model.to(self._device)

    def _dense(self, stored: StoredMatrix) -> Tensor:
        """(num_rows, num_columns) on the device."""
        out = torch.empty(stored.shape, dtype=self._dtype, device=self._device)
        for rows, some in zip(out.split(ROWS_AT_ONCE), stored.numbers(), strict=True):
            rows.copy_(some)
        return out


def fill(model: Any, path: Path, gguf: GgufFile, as_stored: AsStored, store: DenseStore, report: Progress) -> None:
    """Put the weights of a file in their places in an empty model.

    Raises:
        ValueError: some are missing, have no place or another shape, or are of a type that nobody reads.
    """
    config, names = model.config, names_in(gguf)
    tensors = {tensor.name: tensor for tensor in gguf.tensors if not as_stored.is_unused(config, tensor.name)}
    tensors.setdefault(HEAD, tensors[EMBEDDING])
    places, missing = list[tuple[str, nn.Module, dict[str, _Tensors]]](), list[str]()
    for name, module in model.named_modules():
        parts, own = stored_parts(module), dict[str, _Tensors]()
        for part in parts:
            found = [tensors.pop(names(one), None) for one in as_stored.names(config, f"{name}.{part}")]
            if None not in found:
                own[part] = tuple(filter(None, found))
            elif not _is_bias(part, parts):  # a product without a bias in the file has none
                missing.append(f"{name}.{part}")
        places.append((name, module, own))
    if missing:
        raise ValueError(f"{len(missing)} weights are missing, the first is {missing[0]}")
    if tensors:
        raise ValueError(f"{len(tensors)} weights have no place in the model, the first is {next(iter(tensors))}")
    done, total = 0, sum(tensor.num_bytes for tensor in gguf.tensors)
    for name, module, own in places:
        _place(model, name, module, own, path, as_stored, store)
        done += sum(tensor.num_bytes for some in own.values() for tensor in some)
        report(f"Loading {path.name}", min(done / total, 1.0))
    store.finish(model)


def names_in(gguf: GgufFile) -> Callable[[str], str]:
    """The name that a parameter of transformers has in a file.

    Raises:
        ValueError: the `gguf` package does not know this kind of models.
    """
    from gguf import MODEL_ARCH_NAMES, get_tensor_name_map

    family = gguf.metadata["general.architecture"]
    known = [arch for arch, name in MODEL_ARCH_NAMES.items() if name == family]
    if not known:
        raise ValueError(f"the installed package gguf does not know models of type {family}")
    names = get_tensor_name_map(known[0], 1)  # all layers are called alike, and a map of all takes longer than reading

    def stored_name(name: str) -> str:
        if name == f"{LM_HEAD}.weight":  # Gemma 2 has none by llama.cpp
            return HEAD
        of_first = (
            _LAYER.sub(".layers.0.", name)
            .replace("dt_bias", "dt_proj.bias")
            .replace("layer_scalar", "layer_scalar.weight")
        )
        stored = names.get_name(of_first, (".weight", ".bias")) or ""
        layer = _LAYER.search(name)
        return stored if layer is None else stored.replace("blk.0.", f"blk.{layer[1]}.", 1)

    return stored_name


def _is_bias(part: str, parts: dict[str, Tensor]) -> bool:
    return part == "bias" and parts["weight"].dim() == 2


def _place(
    model: Any,
    name: str,
    module: nn.Module,
    own: dict[str, _Tensors],
    path: Path,
    as_stored: AsStored,
    store: DenseStore,
) -> None:
    """Put the parameters of one module where it keeps them."""
    shapes = {part: weight.shape for part, weight in stored_parts(module).items()}
    for part, tensors in own.items():
        if sum(prod(tensor.shape) for tensor in tensors) != shapes[part].numel():
            found = " and ".join(str([*tensor.shape]) for tensor in tensors)
            raise ValueError(f"{tensors[0].name} has the shape {found} instead of {[*shapes[part]]}")
        if len({tensor.kind for tensor in tensors}) > 1:
            raise ValueError(f"{' and '.join(tensor.name for tensor in tensors)} are not of one type")
    if holds_experts(module):
        gate_up, down = (
            _experts(name, part, own, path, as_stored.rows(model.config, f"{name}.{part}"), store)
            for part in EXPERT_WEIGHTS
        )
        replace_module(model, name, SeparateExperts(gate_up, down, module._apply_gate))  # type: ignore[arg-type]
        return
    if "weight" not in own or len(shapes["weight"]) != 2 or name.endswith(".router"):
        for part, tensors in own.items():
            numbers = as_stored.numbers(f"{name}.{part}", torch.cat([numbers_of(path, tensor) for tensor in tensors]))
            rows = as_stored.rows(model.config, f"{name}.{part}")
            numbers = (numbers if rows is None else numbers[rows]).view(shapes[part])
            set_weights(module, {part: store.parameter(numbers)})
        return
    weight, bias = f"{name}.weight", own.get("bias")
    rows, inputs = as_stored.rows(model.config, weight), as_stored.inputs(model.config, weight)
    stored = StoredMatrix(path, own["weight"], rows, inputs)
    if isinstance(module, nn.Embedding):
        placed = store.embedding(module, stored)
    else:
        own_bias = None if bias is None else store.parameter(numbers_of(path, bias[0]))
        placed = store.linear(name, stored, own_bias)
    replace_module(model, name, placed)


def _experts(
    name: str, part: str, own: dict[str, _Tensors], path: Path, rows: Tensor | None, store: DenseStore
) -> list[nn.Module]:
    """One projection of every expert of a module, each from its own part of the file."""
    biases, place = own.get(f"{part}_bias", ()), part.removesuffix("_proj")
    linears = list[nn.Module]()
    for expert in range(own[part][0].shape[0]):
        stored = StoredMatrix(path, tuple(tensor.of_first(expert) for tensor in own[part]), rows)
        bias = torch.cat([numbers_of(path, tensor.of_first(expert)) for tensor in biases]) if biases else None
        bias = bias if bias is None else store.parameter(bias if rows is None else bias[rows])
        linears.append(store.linear(f"{name}.{place}.{expert}", stored, bias))
    return linears


def numbers_of(path: Path, tensor: GgufTensor) -> Tensor:
    """The numbers of a tensor in float32, of its own shape."""
    num_columns = tensor.shape[-1]
    raw = _bytes_of(path, tensor).view(prod(tensor.shape) // num_columns, -1)
    return unpacked(raw, tensor.kind, num_columns).view(tensor.shape)


def _bytes_of(path: Path, tensor: GgufTensor) -> Tensor:
    return torch.from_numpy(np.fromfile(path, np.uint8, tensor.num_bytes, offset=tensor.offset))


def unpacked(raw: Tensor, kind: int, num_columns: int) -> Tensor:
    """Rows (num_rows, bytes of a row) uint8 of any type as (num_rows, num_columns) float32.

    Raises:
        NotImplementedError: the package `gguf` does not read numbers of this type.
    """
    if kind in BLOCK_TYPES:
        return dequantize_rows(raw, kind, num_columns)
    from gguf import GGMLQuantizationType
    from gguf.quants import dequantize

    return torch.from_numpy(dequantize(raw.numpy(), GGMLQuantizationType(kind))).float()
