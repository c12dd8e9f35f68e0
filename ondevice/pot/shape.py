"""Shape of a pot's buffers, before there are any."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby
from math import prod
from typing import NamedTuple

import torch

from ondevice.config import KeyRotation, KvDtype
from ondevice.kernels.quantize import num_groups

FREE = -1  # origin of a slot that holds nothing
PROMPT = -2  # origin of a slot that holds a token of the prompt, a question or an answer
UNKNOWN = -1.0  # novelty of a token whose cross-entropy was not computed; a known one is never negative
_BITS: dict[KvDtype, tuple[int, int]] = {"int8": (8, 8), "k8v4": (8, 4), "int4": (4, 4)}  # of keys, of values
Kind = tuple[torch.dtype, tuple[int, ...]]
PROVENANCE = ("positions", "origin", "importance", "novelty")  # what is known of every slot


class StatePart(NamedTuple):
    """A buffer of what a layer without slots, counted among all of the model, keeps for each text of a batch."""

    layer: int
    name: str
    dtype: torch.dtype | None  # None: the model's
    size: tuple[int, ...]


def runs(layers: slice, key: Callable[[int], object]) -> Iterator[slice]:
    """Some layers, in runs of neighbours for which `key` gives the same."""
    start = layers.start
    for _, run in groupby(range(layers.start, layers.stop), key):
        stop = start + len(list(run))
        yield slice(start, stop)
        start = stop


@dataclass(frozen=True, slots=True)
class PotShape:
    """Sizes of the buffers.

    A layer of the pot is one of the model. Where the heads of a layer hold different numbers of tokens, each KV head is
    a layer of the pot by itself, `pot_layers_per_layer` of them: they follow one another, and count their positions
    together.

    `ropes` says for each layer of the model that has slots which RoPE it turns by; None: all by the same. `state` is
    what the layers without slots keep beside the pot.

    `capacity` is the slots of every layer, or with `capacities`, one number a layer, of the largest.
    `key_rotation` decides what is kept beside the keys before RoPE and the values: rotated keys, EQUIP's rotated
    halves (`rotary_dim` of them turn) with one layer's workspace, or nothing. `kv_dtype` is the type of
    keys and values: the model's, or quantised, beside which nothing is kept.
    """

    num_layers: int
    num_kv_heads: int
    head_dim: int
    capacity: int
    batch: int = 1
    key_rotation: KeyRotation = "stored"
    rotary_dim: int = 0
    capacities: tuple[int, ...] | None = None
    pot_layers_per_layer: int = 1
    kv_dtype: KvDtype = "model"
    ropes: tuple[int, ...] | None = None
    state: tuple[StatePart, ...] = ()

    def __post_init__(self) -> None:
        assert self.kv_dtype == "model" or self.key_rotation == "on-read"

    @property
    def layers(self) -> slice:
        """All layers of the pot."""
        return slice(0, self.num_layers)

    @property
    def kv_size(self) -> tuple[int, int, int]:
        """Layers, KV heads of each, and numbers of a key."""
        return self.num_layers, self.num_kv_heads, self.head_dim

    def parts_of(self, layer: int) -> range:
        """The layers of the pot that one layer of the model lies in."""
        return range(layer * self.pot_layers_per_layer, (layer + 1) * self.pot_layers_per_layer)

    def alike(self, layers: slice) -> Iterator[slice]:
        """Some layers of the pot, in runs of neighbours that share a RoPE: usually one run."""
        return runs(layers, self.rope_of)

    def rope_of(self, layer: int) -> int:
        """The RoPE of a layer of the pot."""
        return 0 if self.ropes is None else self.ropes[layer // self.pot_layers_per_layer]

    def state_bytes(self, dtype: torch.dtype) -> int:
        """Bytes of what the layers without slots keep."""
        return self.batch * sum((part.dtype or dtype).itemsize * prod(part.size) for part in self.state)

    def nbytes(self, dtype: torch.dtype) -> int:
        """Bytes that a pot of this shape takes: its slots, four numbers of 4 bytes for each, and `state_bytes`."""
        heads = self.batch * self.num_kv_heads
        slots = sum(capacity * (layers.stop - layers.start) for layers, capacity in self.groups())
        vectors = slots * self.num_tensors + self.capacity * (self.key_rotation == "half-cache")
        vector_bytes = vectors * self.head_dim * dtype.itemsize
        if self.kv_dtype != "model":
            vector_bytes = slots * sum(kind.itemsize * prod(size) for kind, size in self.code_kinds)
        return heads * (vector_bytes + self.num_layers * self.capacity * 4 * 4) + self.state_bytes(dtype)

    def groups(self) -> list[tuple[slice, int]]:
        """Runs of neighbouring layers with equally many slots, and how many: usually one run."""
        sizes = self.capacities or (self.capacity,) * self.num_layers
        return [(run, sizes[run.start]) for run in runs(self.layers, sizes.__getitem__)]

    @property
    def code_bits(self) -> tuple[int, int]:
        """Bits of a number of a key and of a value, of a quantised pot."""
        return _BITS[self.kv_dtype]

    @property
    def code_kinds(self) -> list[Kind]:
        """Type and size of the codes of a key and of a value, then of the scales of both, of a quantised pot."""
        kinds = {
            8: ((torch.int8, (self.head_dim,)), (torch.float32, ())),
            4: ((torch.uint8, (self.head_dim // 2,)), (torch.float16, (2 * num_groups(self.head_dim),))),
        }
        codes, scales = zip(*(kinds[bits] for bits in self.code_bits), strict=True)
        return [*codes, *scales]

    @property
    def mean_capacity(self) -> int:
        """Slots of a layer on average."""
        return sum(self.capacities) // self.num_layers if self.capacities else self.capacity

    @property
    def num_tensors(self) -> int:
        """Tensors of (batch, kv_heads, capacity, dim) in each layer."""
        return 2 if self.key_rotation == "on-read" else 3
