"""The memory pot: key and value storage of fixed size, allocated once and only ever changed in place.

It owns the buffers, the number of used slots and the provenance of every slot. It knows neither the model nor
how tokens are scored. Used slots are always 0..num_cached-1 of a layer; free slots hold zeros and origin -1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from ondevice.kernels.codes import Coded, Frame
from ondevice.kernels.pot_update import keep_slots_, replace_slots_
from ondevice.pot.native_state import NativeState, Snapshot
from ondevice.pot.shape import FREE, PROVENANCE, UNKNOWN, PotShape, runs
from ondevice.pot.slots import CodedSlots, WideSlots, plain_frame

Victims = slice | list[Tensor | None]

# What is moved at once; all layers of a small model, where every call counts, and no more than caches of a CPU hold.
_GPU_PIECE, _CPU_PIECE = 128 << 20, 4 << 20  # bytes


class RotateKeys(Protocol):
    """Keys (batch, kv_heads, n, dim), their positions (batch, kv_heads, n), `MemoryPot.max_positions`, a
    number above all positions, where it is known, and the number of their RoPE in `PotShape.ropes` -> keys after it."""

    def __call__(
        self, keys: Tensor, positions: Tensor, max_positions: int, end: int | None = None, rope: int = 0
    ) -> Tensor: ...


class NewTokens(NamedTuple):
    """Document tokens of one KV head: what each buffer of the slots holds of them (n, ...), and origin (n,) int32."""

    parts: list[Tensor]
    origin: Tensor

    @property
    def nbytes(self) -> int:
        """Bytes of keys and values."""
        return sum(part.nbytes for part in self.parts)


class MemoryPot:
    """Fixed-size cache of InfiniPot (arXiv 2410.01518), updated in place as in EQUIP.

    Attributes:
        rotate_keys: applies the RoPE of the model.
        slots: what the slots hold of keys and values, layer by layer.
        native: what the layers without slots keep.
        keys: one tensor a layer, (batch, kv_heads, capacity of the layer, dim), before RoPE; none: quantised.
        values: as `keys`.
        rotated: as `keys`, after RoPE at `positions`; attention reads these. Only where `key_rotation` is "stored".
        halves: as `keys`, `rotate_half` of them. Only where `key_rotation` is "half-cache".
        workspace: one layer's keys after RoPE, written at every step; only with `halves`.
        positions: (layers, batch, kv_heads, capacity) int32, logical position of each slot.
        origin: as `positions`, int32: the document token in the slot, or `FREE`, or `PROMPT`.
        importance: as `positions`, float32: the slot's attention mass at the last distillation.
        novelty: as `positions`, float32: cross-entropy of the token in nats when it was read, or `UNKNOWN`.
        num_cached: used slots of each layer.
        next_position: logical position of the next token, for each layer.
        max_positions: the most positions that are to occur: as many as slots, or what `expect` says.
        num_protected: tokens at positions below this stay there, and are never evicted (prompt and sinks).
        num_ranked: slots of each layer that the last `compact_` laid out, the most important first.
        victims: the slots that the next token overwrites: the same slice in every head, or for each layer
            (batch, kv_heads, 1) int64; None, for all layers or for one: it takes a free slot.
        is_uniform: whether all heads of a layer hold the same tokens in the same slots.
    """

    def __init__(
        self,
        shape: PotShape,
        *,
        dtype: torch.dtype,
        device: torch.device | str,
        rotate_keys: RotateKeys,
        frame: Frame | None = None,
    ) -> None:
        self.shape, self.rotate_keys, device = shape, rotate_keys, torch.device(device)
        heads = (shape.batch, shape.num_kv_heads)
        self.slots: WideSlots | CodedSlots
        self.keys, self.values, self.rotated, self.halves = (list[Tensor]() for _ in range(4))
        if shape.kv_dtype == "model":
            self.slots = WideSlots(shape, dtype=dtype, device=device)
            self.keys, self.values = self.slots.keys, self.slots.values
            self.rotated, self.halves = self.slots.rotated, self.slots.halves
        else:
            self.slots = CodedSlots(shape, frame or plain_frame(shape), dtype=dtype, device=device)
        self.native = NativeState(shape.state, shape.batch, dtype, device)
        one_layer = (*heads, shape.capacity, shape.head_dim)
        self.workspace = torch.zeros(one_layer, dtype=dtype, device=device) if self.halves else None
        per_slot = (shape.num_layers, *heads, shape.capacity)
        self.positions = torch.zeros(per_slot, dtype=torch.int32, device=device)
        self.origin = torch.full(per_slot, FREE, dtype=torch.int32, device=device)
        self.importance = torch.zeros(per_slot, dtype=torch.float32, device=device)
        self.novelty = torch.zeros(per_slot, dtype=torch.float32, device=device)
        self.num_cached = [0] * shape.num_layers
        self.next_position = [0] * shape.num_layers
        self.max_positions = shape.capacity
        self.num_protected = 0
        self.num_ranked = [0] * shape.num_layers
        self.victims: Victims | None = None
        self.is_uniform = True

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers; constant over the life of the pot."""
        return sum(t.numel() * t.element_size() for t in self.buffers())

    @property
    def num_free(self) -> int:
        """Slots that every layer still has free."""
        return min(map(self.num_free_in, range(self.shape.num_layers)))

    def num_free_in(self, layer: int) -> int:
        """Slots that one layer still has free."""
        return self.capacities[layer] - self.num_cached[layer]

    def by_layer(self, counts: Sequence[int]) -> tuple[int, ...]:
        """A number of each layer of the pot, such as `num_cached`, for an average head of each layer of the model."""
        size = self.shape.pot_layers_per_layer
        return tuple(round(sum(counts[i : i + size]) / size) for i in range(0, len(counts), size))

    @property
    def capacities(self) -> list[int]:
        """Slots of each layer."""
        return self.slots.capacities

    def buffers(self) -> list[Tensor]:
        """Every tensor that the pot owns."""
        workspace = [] if self.workspace is None else [self.workspace]
        slots = (buffer for layer in self.slots.layers for buffer in layer)
        return [*slots, *workspace, *self.provenance(), *self.native.buffers]

    def provenance(self) -> list[Tensor]:
        """The buffers (layers, batch, kv_heads, capacity): positions, origin, importance, novelty."""
        return [self.positions, self.origin, self.importance, self.novelty]

    def expect(self, num_positions: int) -> None:
        """Announce, before the first token comes, that positions will run on beyond the slots.

        The RoPE of some models has other frequencies then, and all keys of a pot have to be rotated by the same.
        """
        assert not any(self.num_cached), "keys are rotated already"
        self.max_positions = max(self.max_positions, num_positions)

    def append_(self, layer: int, keys: Tensor, rotated: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Write n new tokens into free slots of a layer, or one over the `victims`, and return what attention reads.

        The slots are not counted as used until `commit_`. Arguments have shape (batch, kv_heads, n, dim),
        `keys` before and `rotated` after RoPE. Two views (batch, kv_heads, num_used, dim) come back:
        keys, after RoPE where `rotated` is stored and before RoPE elsewhere, and values; or the codes of both, which
        `coded` gives with what belongs to them.
        """
        start, capacity = self.num_cached[layer], self.capacities[layer]
        victims = _of_layer(self.victims, layer)
        assert victims is None or keys.shape[2] == 1, "tokens take the place of others one by one"
        end = start if victims is not None else start + keys.shape[2]
        assert end <= capacity, f"{end} tokens do not fit in {capacity} slots"
        self.slots.write_(layer, slice(start, end) if victims is None else victims, keys, rotated, values)
        seen_keys, seen_values, *_ = self.slots.layers[layer]
        if self.rotated:
            seen_keys = self.rotated[layer]
        return seen_keys[:, :, :end], seen_values[:, :, :end]

    @property
    def is_coded(self) -> bool:
        """True if keys and values are quantised."""
        return isinstance(self.slots, CodedSlots)

    @property
    def frame(self) -> Frame | None:
        """The origin of quantised keys, (layers, kv_heads, dim); None: they are not quantised."""
        return self.slots.frame if isinstance(self.slots, CodedSlots) else None

    def coded(self, layer: int, num_slots: int) -> Coded:
        """The first slots of a layer of a quantised pot."""
        assert isinstance(self.slots, CodedSlots)
        return self.slots.coded(layer, num_slots)

    def positions_with(self, layer: int, new: Tensor) -> Tensor:
        """Positions of what attention reads once tokens at positions `new` (n,) int32 were appended, not committed.

        Returns:
            (batch or 1, kv_heads or 1, num_used) int32; one row for all heads where the pot `is_uniform`.
        """
        used = self.num_cached[layer]
        slots = self.positions[layer][:, :, :used]
        if self.is_uniform and (self.victims is None or isinstance(self.victims, slice)):
            slots = slots[:1, :1]
        new = new.expand(*slots.shape[:2], -1)
        victims = _of_layer(self.victims, layer)
        if victims is None:
            return torch.cat((slots, new), dim=-1)
        return replace_slots_(slots.clone(), victims, new)

    def commit_(
        self, num_tokens: int, origin: Tensor | int, num_transient: int = 0, offsets: Sequence[Tensor] | None = None
    ) -> None:
        """Count the first `num_tokens` appended slots of every layer as used; the last `num_transient` become free.

        Args:
            num_tokens: tokens that stay.
            origin: (num_tokens,) int32 document tokens, or one of the constants for all.
            num_transient: appended tokens that do not stay (the catalyst).
            offsets: for each layer which of the `num_tokens` it was given, (n,) int64, rising; None: all of them.
                Positions count the others too, so that distances stay what they are in the document.
        """
        self.native.commit_(num_tokens)
        if offsets is not None:
            self._commit_some(offsets, num_tokens, origin, num_transient)
            return
        if self.victims is not None:
            self._commit_victims(self.victims, origin)
            return
        for layers, start in self.layers_by_length():
            end = start + num_tokens
            first = self.next_position[layers.start]
            steps = torch.arange(first, first + num_tokens, dtype=torch.int32, device=self.positions.device)
            self.positions[layers, :, :, start:end] = steps
            self.origin[layers, :, :, start:end] = origin
            self.novelty[layers, :, :, start:end] = UNKNOWN
            for layer in range(layers.start, layers.stop):
                self.num_cached[layer] = end
                self.next_position[layer] += num_tokens
            if num_transient:
                self.clear_(layers, end, end + num_transient)

    def count_(self) -> None:
        """Count one token that was written, with its provenance, into the next free slot or over the shared victim."""
        assert self.victims is None or isinstance(self.victims, slice)
        for layer in range(self.shape.num_layers):
            self.num_cached[layer] += self.victims is None
            self.next_position[layer] += 1
        self.victims = None

    def discard_(self, num_tokens: int) -> None:
        """Undo the `append_` of up to `num_tokens` tokens that were never committed.

        What was written over victims stays, with the victims' provenance: an undo log brings those back.
        """
        self.native.discard_()
        for layer, start in enumerate(self.num_cached):
            if _of_layer(self.victims, layer) is None:
                self.clear_(slice(layer, layer + 1), start, start + num_tokens)

    def set_novelty_(self, tokens: Tensor, novelty: Tensor) -> None:
        """Write the novelty (batch, n) float32 of document tokens (n,) int32, rising, into the slots that hold them."""
        for layers, end in self.layers_by_length():
            origin, old = self.origin[layers, ..., :end], self.novelty[layers, ..., :end]
            index = torch.searchsorted(tokens, origin.contiguous()).clamp_(max=tokens.shape[0] - 1)
            new = novelty[:, None].expand(*origin.shape[:3], -1).gather(-1, index)
            old.copy_(torch.where(tokens[index] == origin, new, old))

    def compact_(self, layers: slice, index: Tensor) -> None:
        """Evict all but the slots `index` of some layers that hold equally many, and lay those out in that order, which
        is the most important first.

        Args:
            layers: neighbouring layers with the same `num_cached`.
            index: (layers of the slice, batch, kv_heads, n) int64.
        """
        num_cached, num_kept = self.num_cached[layers.start], index.shape[-1]
        for buffer in self.provenance():
            part = buffer[layers]
            part[..., :num_kept] = part.gather(-1, index)
            part[..., num_kept:num_cached] = FREE if buffer is self.origin else 0
        for some in self.pieces(layers, num_kept):
            part = index[some.start - layers.start : some.stop - layers.start].flatten(0, 1)
            for buffer in self.slots.of(some):
                keep_slots_(buffer.flatten(0, 1), part, num_cached)
        for layer in range(layers.start, layers.stop):
            self.num_cached[layer] = self.num_ranked[layer] = num_kept
        self.is_uniform = self.is_uniform and bool((index == index[:, :1, :1]).all())

    def add_importance_(self, mass: Sequence[Tensor]) -> list[Tensor]:
        """Add attention, (batch, kv_heads, num_cached) a layer, to the importance of used slots; gives the sums."""
        sums = [self.importance[layer, ..., :used] for layer, used in enumerate(self.num_cached)]
        for total, new in zip(sums, mass, strict=True):
            total += new
        return sums

    def insert_last_(self, layer: int, num_used: int, heads: Sequence[NewTokens]) -> None:
        """Make so many slots of one layer used, the last of them in each head by new tokens, over what lies there.

        Heads may take different numbers, all that are needed to fill free slots at least; `number_by_origin_` then
        gives them their positions. Batch 1.
        """
        assert num_used <= self.capacities[layer]
        for head, tokens in enumerate(heads):
            count = tokens.origin.shape[0]
            assert num_used - count <= self.num_cached[layer], "a free slot would hold nothing"
            new = slice(num_used - count, num_used)
            for buffer, part in zip(self.slots.layers[layer], tokens.parts, strict=False):
                buffer[0, head, new] = part
            self.origin[layer, 0, head, new] = tokens.origin
            self.importance[layer, 0, head, new], self.novelty[layer, 0, head, new] = 0.0, UNKNOWN
        first_new = num_used - max(tokens.origin.shape[0] for tokens in heads)
        self.num_ranked[layer] = min(self.num_ranked[layer], first_new)
        self.num_cached[layer] = num_used
        self.is_uniform = False

    def rewind_to_(self, num_cached: list[int], next_position: list[int], native: Snapshot | None = None) -> None:
        """Free the slots that were taken since each layer had these lengths: how an answer leaves the pot.

        Args:
            native: of the layers without slots at that time; only a pot of a model that has none does without it.
        """
        assert native is not None or not self.shape.state, "a state is not undone by slot"
        if native is not None:
            self.native.restore_(native)
        for layer, length in enumerate(num_cached):
            self.clear_(slice(layer, layer + 1), length, self.num_cached[layer])
        self.num_cached = list(num_cached)
        self.next_position = list(next_position)

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """Free, at the end and whatever happens, the slots that tokens took within: a look at what the pot holds."""
        before = list(self.num_cached), list(self.next_position), self.native.snapshot()
        try:
            yield
        finally:
            self.rewind_to_(*before)

    def state(self) -> dict[str, Tensor]:
        """Copies of what the used slots hold, by name; with `restore_` it makes another pot equal to this one."""
        most = max(self.num_cached)
        state = {name: part[..., :most].clone() for name, part in zip(PROVENANCE, self.provenance(), strict=True)}
        for layer, used in enumerate(self.num_cached):
            for name, buffer in zip(self.slots.names, self.slots.layers[layer], strict=False):
                state[f"{name}.{layer}"] = buffer[:, :, :used].clone()
        state["num_cached"] = torch.tensor(self.num_cached)
        state["next_position"] = torch.tensor(self.next_position)
        state["num_ranked"] = torch.tensor(self.num_ranked)
        return state | self.native.saved()

    def layer_buffers(self, layer: int) -> list[Tensor]:
        """Everything that changes with a slot of one layer: its keys, values and provenance."""
        return [*self.slots.layers[layer], *(t[layer] for t in self.provenance())]

    def _commit_some(
        self, offsets: Sequence[Tensor], num_tokens: int, origin: Tensor | int, num_transient: int
    ) -> None:
        assert self.victims is None, "pruned passes take free slots"
        for layer, given in enumerate(offsets):
            start, end = self.num_cached[layer], self.num_cached[layer] + given.shape[0]
            self.positions[layer, :, :, start:end] = given + self.next_position[layer]
            self.origin[layer, :, :, start:end] = origin[given] if isinstance(origin, Tensor) else origin
            self.novelty[layer, :, :, start:end] = UNKNOWN
            self.num_cached[layer] = end
            self.next_position[layer] += num_tokens
            self.clear_(slice(layer, layer + 1), end, end + num_transient)

    def _commit_victims(self, victims: Victims, origin: Tensor | int) -> None:
        shape = (self.shape.batch, self.shape.num_kv_heads, 1)
        origins = torch.as_tensor(origin, dtype=torch.int32, device=self.origin.device).expand(shape)
        for layer, first in enumerate(self.next_position):
            index = _of_layer(victims, layer)
            if index is None:
                index = slice(self.num_cached[layer], self.num_cached[layer] + 1)
                self.num_cached[layer] = index.stop
                self.novelty[layer, :, :, index] = UNKNOWN
            new = torch.full_like(origins, first)
            replace_slots_(self.positions[layer], index, new)
            replace_slots_(self.origin[layer], index, origins)
            self.next_position[layer] += 1
        self.is_uniform = self.is_uniform and isinstance(victims, slice)
        self.victims = None

    def clear_(self, layers: slice, start: int, end: int) -> None:
        """Make slots free again: zeros everywhere, origin `FREE`."""
        self.slots.clear_(layers, start, end)
        for part in self.provenance():
            part[layers, :, :, start:end] = FREE if part is self.origin else 0

    def pieces(self, layers: slice, num_slots: int) -> Iterator[slice]:
        """Some layers of one size, as many at a time as may be moved at once with so many slots of each."""
        layer_bytes = self.slots.layers[layers.start][0][:, :, :num_slots].nbytes
        budget = _CPU_PIECE if self.positions.device.type == "cpu" else _GPU_PIECE
        size = max(budget // max(layer_bytes, 1), 1)
        for start in range(layers.start, layers.stop, size):
            yield slice(start, min(start + size, layers.stop))

    def layers_by_length(self) -> list[tuple[slice, int]]:
        """Runs of neighbouring layers of one size that hold equally many tokens, with that number: usually one run."""
        lengths = list(zip(self.capacities, self.num_cached, self.next_position, strict=True))
        found = runs(self.shape.layers, lengths.__getitem__)
        return [(layers, self.num_cached[layers.start]) for layers in found]


def _of_layer(victims: Victims | None, layer: int) -> Tensor | slice | None:
    return victims[layer] if isinstance(victims, list) else victims
