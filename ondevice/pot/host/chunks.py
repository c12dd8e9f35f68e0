"""Rows outside the pot that grow with the document: chunk by chunk up to a bound, and what is stored never moves.
Copies between a device and the host memory that they lie in.

A chunk is one allocation of all fields, in memory or in a file mapped into it. Chunks after the first ones are an
eighth of what there is already, so that little is taken in vain and there are few of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from ondevice.pot.shape import PotShape

UNIT_ROWS = 8  # chunks are whole units of so many rows
MOST_MEANS = 1 / 8  # of the tier's bytes: its mean keys, which are a sixteenth, or a ninth in 4 bits
_FIRST_ROWS = 512


class Field(NamedTuple):
    """A field that a chunk keeps for every row, or for every so many rows."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    every: int = 1

    @property
    def nbytes(self) -> int:
        """Bytes for each time."""
        return math.prod(self.shape) * self.dtype.itemsize


class _Chunk(NamedTuple):
    """Rows [start, stop) of all fields."""

    start: int
    stop: int
    parts: dict[str, Tensor]


class Chunks:
    """Rows 0..capacity-1 of several fields; those that nothing was written to yet take no memory.

    Args:
        fields: by name; the wider types first, so that every part is aligned.
        capacity: rows at most, rounded up to whole units.
    """

    def __init__(self, fields: Mapping[str, Field], capacity: int) -> None:
        self.capacity = _whole_units(capacity)
        self._fields = fields
        self._chunks: list[_Chunk] = []

    @staticmethod
    def unit_bytes(fields: Mapping[str, Field]) -> int:
        """Bytes of `UNIT_ROWS` rows."""
        return sum(UNIT_ROWS // field.every * field.nbytes for field in fields.values())

    @property
    def num_rows(self) -> int:
        """Rows that there is memory for."""
        return self._chunks[-1].stop if self._chunks else 0

    @property
    def nbytes(self) -> int:
        """Bytes of all chunks."""
        return self.num_rows // UNIT_ROWS * self.unit_bytes(self._fields)

    def limit(self, capacity: int) -> None:
        """Lower the bound, as far as nothing is stored beyond it."""
        self.capacity = max(min(self.capacity, _whole_units(capacity)), self.num_rows)

    def write(self, name: str, first: int, rows: Tensor) -> None:
        """Store rows (n, *shape) of a field, from row `first` on; with `every`, counted in those."""
        every = self._fields[name].every
        self._grow((first + rows.shape[0]) * every)
        for chunk, at, part in self._parts(first * every, (first + rows.shape[0]) * every):
            chunk[name][_divided(at, every)] = rows[_divided(part, every)]

    def read(self, name: str, at: Tensor | slice) -> Tensor:
        """A copy of some rows of a field, (n, *shape).

        Args:
            at: (n,) int64, rising, or a slice of rows; with `every`, counted in those.
        """
        field = self._fields[name]
        if isinstance(at, slice):
            stop = min(at.stop, self.num_rows // field.every)
            parts = self._parts(at.start * field.every, stop * field.every)
            pieces = [chunk[name][_divided(inside, field.every)] for chunk, inside, _ in parts]
        else:
            chunks = list(self._chunks)
            edges = [0, *(chunk.stop // field.every for chunk in chunks)]
            cuts = torch.searchsorted(at, torch.tensor(edges)).tolist()
            pieces = [
                chunk.parts[name].index_select(0, at[first:last] - chunk.start // field.every)
                for chunk, first, last in zip(chunks, cuts, cuts[1:], strict=False)
                if first < last
            ]
        return torch.cat(pieces) if pieces else torch.empty(0, *field.shape, dtype=field.dtype)

    def _parts(self, first: int, stop: int) -> Iterator[tuple[dict[str, Tensor], slice, slice]]:
        """Chunks that hold the rows [first, stop): with which of their rows, and which of those asked for they are."""
        for chunk in self._chunks:
            low, high = max(first, chunk.start), min(stop, chunk.stop)
            if low < high:
                yield chunk.parts, slice(low - chunk.start, high - chunk.start), slice(low - first, high - first)

    def _grow(self, stop: int) -> None:
        assert stop <= self.capacity, f"row {stop} of {self.capacity}"
        while (start := self.num_rows) < stop:
            count = min(max(_FIRST_ROWS, _whole_units(start // 8)), self.capacity - start)
            memory = torch.zeros(count // UNIT_ROWS * self.unit_bytes(self._fields), dtype=torch.uint8)
            parts, used = {}, 0
            for name, field in self._fields.items():
                end = used + count // field.every * field.nbytes
                parts[name] = memory[used:end].view(field.dtype).view(-1, *field.shape)
                used = end
            self._chunks.append(_Chunk(start, start + count, parts))


def _whole_units(count: int) -> int:
    return -(-count // UNIT_ROWS) * UNIT_ROWS


def _divided(rows: slice, every: int) -> slice:
    return slice(rows.start // every, rows.stop // every)


def ring_parts(start: int, count: int, capacity: int) -> list[tuple[slice, int]]:
    """(part of the new tokens, first place it goes to): one part, or two where the ring begins again."""
    before_end = min(count, capacity - start)
    parts = [(slice(0, before_end), start)]
    if before_end < count:
        parts.append((slice(before_end, count), 0))
    return parts


def to_host(tensor: Tensor) -> Tensor:
    """A tensor in host memory; from CUDA through pinned memory, which lets other streams go on meanwhile."""
    if tensor.device.type != "cuda":
        return tensor.cpu()
    pinned = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    pinned.copy_(tensor, non_blocking=True)
    torch.cuda.current_stream().synchronize()
    return pinned


def to_device(tensor: Tensor, device: torch.device | str) -> Tensor:
    """The inverse; the copy to CUDA goes on while this thread does other things."""
    return tensor if torch.device(device).type == "cpu" else tensor.pin_memory().to(device, non_blocking=True)


def tier_fields(shape: PotShape) -> dict[str, Field]:
    """The fields of a token of one layer, and of a unit of them; the wider types first.

    What the pot has quantised stays as it is, all else is in 8 bits. `numbers` and `scales` are of its key and its
    value, or of its key alone where values are in other codes.
    """
    (_, heads, dim), fields = shape.kv_size, {"origin": Field((), torch.int32)}
    stored = "int8" if shape.kv_dtype == "model" else shape.kv_dtype
    kinds = replace(shape, kv_dtype=stored, key_rotation="on-read").code_kinds
    (keys, key_size), (values, value_size), (key_scales, key_scale_size), (scales, scale_size) = kinds
    token = (1 if keys != values else 2, heads)
    fields["numbers"], fields["scales"] = Field((*token, *key_size), keys), Field((*token, *key_scale_size), key_scales)
    if keys != values:
        fields["value_numbers"] = Field((*token, *value_size), values)
        fields["value_scales"] = Field((*token, *scale_size), scales)
    fields["means"] = Field((heads, dim), torch.int8, UNIT_ROWS)
    fields["mean_scales"] = Field((heads,), torch.float32, UNIT_ROWS)
    return dict(sorted(fields.items(), key=lambda item: -item[1].dtype.itemsize))
