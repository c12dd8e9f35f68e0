"""Paged key and value storage that is updated in place: EQUIP's section 4.4 for a batch of sequences.

It owns the blocks, the length of every sequence and the provenance of every slot. A slot is logical: slot s of a
sequence lies at offset s % block_size of the physical block that its table names, and every write goes there.
Used slots are always 0..num_cached-1 of a sequence, in all layers alike; free slots hold zeros and origin -1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ondevice.pot.shape import FREE
from ondevice_bench.paged.block_tables import BlockTables
from ondevice_bench.paged.paged_update import gather_blocks, replace_paged_slots_


@dataclass(frozen=True, slots=True)
class PagedShape:
    """Sizes of the storage.

    Attributes:
        num_blocks: physical blocks of each layer, shared by all sequences.
        max_blocks: blocks that one sequence may have.
        num_sink_tokens: first slots of a sequence whose keys before RoPE are kept as well.
    """

    num_layers: int
    num_kv_heads: int
    head_dim: int
    num_blocks: int
    max_blocks: int
    block_size: int = 16
    batch: int = 1
    num_sink_tokens: int = 0

    @property
    def max_slots(self) -> int:
        """Slots that one sequence may have."""
        return self.max_blocks * self.block_size


class PagedPot:
    """Keys and values of a batch of sequences in shared blocks, allocated once and only ever changed in place.

    Methods take the sequences concerned as `rows` of the batch, None for all. A step writes every layer by `append_`
    or `replace_`; then `commit_` counts it.

    Attributes:
        key_blocks: one tensor a layer, (num_blocks, block_size, kv_heads, dim), after RoPE.
        value_blocks: as `key_blocks`.
        sink_keys: (layers, batch, kv_heads, num_sink_tokens, dim), before RoPE.
        positions: (num_blocks, block_size, layers, kv_heads) int32, logical position of each slot.
        origin: as `positions`: the document token in the slot, or `FREE`, or `PROMPT`.
        tables: who owns which block.
        lengths: (batch,) int32, used slots of each sequence, as the attention reads them.
        num_cached: the same numbers on the host.
        next_position: logical position of the next token of each sequence.
    """

    def __init__(
        self, shape: PagedShape, *, dtype: torch.dtype, device: torch.device | str, table_seed: int = 0
    ) -> None:
        self.shape = shape
        block = (shape.num_blocks, shape.block_size)
        self._storage = torch.zeros(
            2, shape.num_layers, *block, shape.num_kv_heads, shape.head_dim, dtype=dtype, device=device
        )
        self.key_blocks, self.value_blocks = (list(buffers.unbind()) for buffers in self._storage)
        sinks = (shape.num_layers, shape.batch, shape.num_kv_heads, shape.num_sink_tokens, shape.head_dim)
        self.sink_keys = torch.zeros(sinks, dtype=dtype, device=device)
        # The layers lie side by side in a slot, like heads: what concerns all of them is one write.
        per_slot = (*block, shape.num_layers, shape.num_kv_heads)
        self.positions = torch.zeros(per_slot, dtype=torch.int32, device=device)
        self.origin = torch.full(per_slot, FREE, dtype=torch.int32, device=device)
        self.lengths = torch.zeros(shape.batch, dtype=torch.int32, device=device)
        self.tables = BlockTables(shape.batch, shape.max_blocks, *block, device=device, seed=table_seed)
        self.num_cached = [0] * shape.batch
        self.next_position = [0] * shape.batch

    @property
    def block_tables(self) -> Tensor:
        """(batch, max_blocks) int32, as the attention reads them."""
        return self.tables.table

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers; constant over the life of the pot."""
        return sum(t.numel() * t.element_size() for t in self.buffers())

    def buffers(self) -> list[Tensor]:
        """Every tensor that the pot owns."""
        provenance = [self.positions, self.origin, self.lengths, self.block_tables]
        return [*self.key_blocks, *self.value_blocks, self.sink_keys, *provenance]

    def append_(
        self, layer: int, keys: Tensor, rotated: Tensor, values: Tensor, *, rows: Sequence[int] | None = None
    ) -> None:
        """Write n new tokens of each sequence after its used slots; blocks are allocated as needed.

        Arguments have shape (rows, kv_heads, n, dim): keys before RoPE, keys after RoPE, values.

        Raises:
            PotError: no block is left; nothing is changed.
        """
        rows, num_tokens = self._rows(rows), keys.shape[2]
        self.tables.reserve({row: self.num_cached[row] + num_tokens for row in rows})
        self._write(layer, self._free_slots(rows, num_tokens), rotated, values, rows)
        for i, row in enumerate(rows):
            start = self.num_cached[row]
            num_sinks = min(self.shape.num_sink_tokens - start, num_tokens)
            if num_sinks > 0:
                self.sink_keys[layer, row, :, start : start + num_sinks] = keys[i, :, :num_sinks]

    def replace_(
        self, layer: int, slots: Tensor, rotated: Tensor, values: Tensor, *, rows: Sequence[int] | None = None
    ) -> None:
        """Overwrite evicted slots of each sequence with n new tokens: EQUIP's in-place replacement.

        Args:
            slots: distinct used slots after the sinks, int64: (rows, n), the same for all layers and heads, or
                (rows, layers, kv_heads, n).
            rotated: (rows, kv_heads, n, dim), keys after RoPE.
            values: as `rotated`.
        """
        self._write(layer, slots if slots.dim() == 2 else slots[:, layer], rotated, values, self._rows(rows))

    def commit_(
        self, num_tokens: int, origin: Tensor | int, *, slots: Tensor | None = None, rows: Sequence[int] | None = None
    ) -> None:
        """Record the provenance of n tokens that every layer has taken, and count them.

        Args:
            num_tokens: n.
            origin: (rows, n) int32 document tokens, or one of the constants for all.
            slots: those given to `replace_`; None: the tokens were appended.
        """
        rows = self._rows(rows)
        where = self._free_slots(rows, num_tokens) if slots is None else slots
        first = torch.tensor([self.next_position[row] for row in rows], dtype=torch.int32, device=where.device)
        steps = first[:, None] + torch.arange(num_tokens, dtype=torch.int32, device=where.device)
        self._record(self.positions, where, steps, rows)
        self._record(self.origin, where, torch.as_tensor(origin, dtype=torch.int32, device=where.device), rows)
        for row in rows:
            self.next_position[row] += num_tokens
            if slots is None:
                self._set_length(row, self.num_cached[row] + num_tokens)

    def turn_sinks_(
        self,
        positions: Tensor,
        rotate_keys: Callable[[Tensor, Tensor], Tensor],
        *,
        rows: Sequence[int] | None = None,
    ) -> None:
        """Rotate the sinks again, from their keys before RoPE, to the given logical positions.

        RoPE sees distances only: moving the few sinks along with the text equals StreamingLLM's positions within
        the cache (arXiv 2309.17453), where every other key would have to turn at every step.

        Args:
            positions: (rows, num_sink_tokens) int32.
            rotate_keys: keys (m, kv_heads, n, dim) and positions (m, kv_heads, n) -> keys after RoPE.
        """
        shape, rows = self.shape, self._rows(rows)
        slots = torch.arange(shape.num_sink_tokens, device=positions.device).expand(positions.shape)
        per_head = positions[:, None].expand(-1, shape.num_kv_heads, -1)
        keys = self.sink_keys[:, rows].flatten(0, 1)
        rotated = rotate_keys(keys, per_head.repeat(shape.num_layers, 1, 1)).unflatten(0, (shape.num_layers, -1))
        for blocks, layer_keys in zip(self.key_blocks, rotated, strict=True):
            replace_paged_slots_(blocks, self._tables(rows), slots, layer_keys)
        self._record(self.positions, slots, positions, rows)

    def rewind_to_(self, row: int, num_cached: int, next_position: int) -> None:
        """Free the slots of a sequence after the first `num_cached`, uncommitted ones too, and their blocks."""
        self._clear(self.tables.release(row, num_cached), 0)
        if num_cached % self.shape.block_size:
            self._clear(self.tables.owned[row][-1:], num_cached % self.shape.block_size)
        self.sink_keys[:, row, :, num_cached:] = 0
        self.next_position[row] = next_position
        self._set_length(row, num_cached)

    def release_(self, row: int) -> None:
        """Return all blocks of a finished sequence; its row is free for another one."""
        self.rewind_to_(row, 0, 0)

    def logical(self, provenance: Tensor) -> Tensor:
        """Copy `positions` or `origin` into logical order: (batch, layers, kv_heads, max_slots).

        What lies after `lengths` is undefined.
        """
        heads = gather_blocks(provenance.flatten(2), self.block_tables)
        return heads.unflatten(1, (self.shape.num_layers, self.shape.num_kv_heads))

    def check_integrity(self) -> None:
        """Assert the invariants of the pot, between two steps."""
        self.tables.check_integrity()
        assert self.lengths.tolist() == self.num_cached
        used = torch.zeros(self.origin.shape[:2], dtype=torch.bool)
        for blocks, length in zip(self.tables.owned, self.num_cached, strict=True):
            assert len(blocks) == -(-length // self.shape.block_size), "a sequence has too many blocks or too few"
            for i, block in enumerate(blocks):
                used[block, : length - i * self.shape.block_size] = True
        used = used.to(self.origin.device)
        assert not bool((self.origin[used] == FREE).any()), "a used slot has no origin"
        assert bool((self.origin[~used] == FREE).all()), "a free slot has an origin"
        assert not bool(self.positions[~used].any()), "a free slot holds data"
        assert not bool(self._storage[:, :, ~used].any()), "a free slot holds data"
        positions = self.logical(self.positions)
        for row, length in enumerate(self.num_cached):
            for head in positions[row, :, :, :length].flatten(0, 1):
                assert head.unique().numel() == length, "two slots share a position"
                assert length == 0 or int(head.max()) < self.next_position[row]

    def _rows(self, rows: Sequence[int] | None) -> list[int]:
        return list(range(self.shape.batch)) if rows is None else list(rows)

    def _tables(self, rows: list[int]) -> Tensor:
        """The tables (rows, max_blocks) of some sequences; no copy when these are all of them."""
        return self.block_tables if rows == list(range(self.shape.batch)) else self.block_tables[rows]

    def _free_slots(self, rows: list[int], num_tokens: int) -> Tensor:
        """(rows, n) int64: the next n slots after the used ones."""
        return self.lengths[rows, None] + torch.arange(num_tokens, device=self.lengths.device)

    def _write(self, layer: int, slots: Tensor, rotated: Tensor, values: Tensor, rows: list[int]) -> None:
        tables = self._tables(rows)
        replace_paged_slots_(self.key_blocks[layer], tables, slots, rotated)
        replace_paged_slots_(self.value_blocks[layer], tables, slots, values)

    def _record(self, provenance: Tensor, slots: Tensor, numbers: Tensor, rows: list[int]) -> None:
        """Write numbers, broadcastable to (rows, n), into the slots of all layers and heads."""
        per_layer = numbers.expand(slots.shape[0], slots.shape[-1])[:, None].expand(
            -1, self.shape.num_layers * self.shape.num_kv_heads, -1
        )
        where = slots if slots.dim() == 2 else slots.flatten(1, 2)
        replace_paged_slots_(provenance.flatten(2), self._tables(rows), where, per_layer)

    def _set_length(self, row: int, num_cached: int) -> None:
        self.num_cached[row] = num_cached
        self.lengths[row] = num_cached

    def _clear(self, blocks: list[int], offset: int) -> None:
        """Make the slots of some blocks free again, from `offset` on: zeros everywhere, origin `FREE`."""
        self._storage[:, :, blocks, offset:] = 0
        self.positions[blocks, offset:] = 0
        self.origin[blocks, offset:] = FREE
