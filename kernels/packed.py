"""Weights of 4, 5, 6 or 8 bits in groups that share a scale: how they lie in memory, packed and unpacked.

A weight is scale * code + offset, the code unsigned; without an offset it is scale * (code - middle). 16 rows
(outputs) make a tile, and of a tile one group of inputs after the other is stored: 16 scales and 16 offsets in
float16, then planes of bits. Within them a vector of 64 bytes holds 16 rows x 4 inputs (a chunk): the upper four bits
of two chunks share a vector, and the lower bits of all chunks another; the lower four of eight bits are laid out as
the upper. So a product reads a tile once, from front to end.

In two steps, as llama.cpp's K types have them, scales and offsets of a group are whole numbers of 8 bits, which are
multiplied by two float16 of a unit of 256 inputs; those stand before its groups.

Lower bits may also stand apart, in memory of their own: then who wants to know which outputs are the largest reads
the upper ones of all rows, and the lower ones of few.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, groupby
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

TILE_ROWS = 16
_CHUNK = 4  # inputs
VECTOR_BYTES = TILE_ROWS * _CHUNK
UNIT_SIZE = 256  # inputs


@dataclass(frozen=True, slots=True)
class Format:
    """The storage of groups of so many bits a weight; sizes in bytes are those of a group of a tile.

    `lower` bits than four stand beside those, or apart from them, or are taken for half of what they can be, unread.
    """

    bits: int
    group_size: int
    has_offset: bool
    in_two_steps: bool
    lower: Literal["beside", "apart", "unread"] = "beside"

    @property
    def number(self) -> int:
        """Its key in `BY_NUMBER`, for kernels."""
        kind = ("beside", "apart", "unread").index(self.lower)
        return 64 * kind + 4 * self.bits + 2 * self.has_offset + self.in_two_steps

    @property
    def middle(self) -> int:
        """The code of weight 0, without an offset."""
        return (1 << (self.bits - 1)) - ((1 << self.num_lower_bits) // 2 if self.lower == "unread" else 0)

    @property
    def num_chunks(self) -> int:
        return self.group_size // _CHUNK

    @property
    def num_planes(self) -> int:
        """Eight bits are stored four at a time, and so multiplied where sums of 16 bits hold none of theirs."""
        return 2 if self.bits == 8 else 1

    @property
    def largest(self) -> int:
        """The largest number in a plane."""
        return 15 if self.bits == 8 else (1 << self.bits) - 1

    @property
    def farthest(self) -> int:
        """The largest distance of a code from the middle."""
        largest = (1 << self.bits) - (1 << self.num_lower_bits if self.lower == "unread" else 1)
        return max(self.middle, largest - self.middle)

    @property
    def num_lower_bits(self) -> int:
        """Below the upper four."""
        return self.bits - 4

    @property
    def lower_bytes(self) -> int:
        """Of those."""
        return TILE_ROWS * self.group_size * self.num_lower_bits // 8

    @property
    def num_factors(self) -> int:
        """Scales and offsets of a tile's group."""
        return TILE_ROWS * (1 + self.has_offset)

    @property
    def header_bytes(self) -> int:
        """Scales and offsets."""
        return self.num_factors * (1 if self.in_two_steps else 2)

    @property
    def unit_groups(self) -> int:
        """Groups that share the first step of their scales."""
        return UNIT_SIZE // self.group_size if self.in_two_steps else 1

    @property
    def unit_header_bytes(self) -> int:
        """The numbers that they share."""
        return 2 * self.num_factors if self.in_two_steps else 0

    @property
    def unit_bytes(self) -> int:
        return self.unit_header_bytes + self.unit_groups * self.group_bytes

    @property
    def plane_bytes(self) -> int:
        return TILE_ROWS * self.group_size // 2

    @property
    def group_bytes(self) -> int:
        """Without what stands apart."""
        return self.header_bytes + self.plane_bytes + (self.lower_bytes if self.lower == "beside" else 0)

    @property
    def panel_bytes(self) -> int:
        """Unpacked."""
        return self.panel_offset(self.num_chunks, self.num_planes - 1)

    def panel_offset(self, chunk: int, plane: int) -> int:
        """Offset of a vector of an unpacked group."""
        header = 4 * TILE_ROWS * (1 + self.has_offset)
        return header + (plane * self.num_chunks + chunk) * VECTOR_BYTES


# Upper bits fill whole bytes: one of each of 8 chunks, or two of each of 4.
_GROUP_SIZES = {4: 32, 5: 32, 6: 16, 8: 32}
# By bits, whether there are offsets, and whether scales have two steps.
FORMATS = {
    (bits, has_offset, False): Format(bits, group_size, has_offset, False)
    for bits, group_size in _GROUP_SIZES.items()
    for has_offset in (False, True)
} | {
    (bits, has_offset, True): Format(bits, _GROUP_SIZES[bits], has_offset, True)
    for bits, has_offset in ((4, True), (5, True), (6, False))
}
_PARTED = {
    form: replace(form, lower="apart") for form in FORMATS.values() if not form.has_offset and form.num_lower_bits > 1
}
BY_NUMBER = {
    form.number: form
    for form in (*FORMATS.values(), *_PARTED.values(), *(replace(form, lower="unread") for form in _PARTED))
}


def parted(form: Format) -> Format:
    """The form with its lower bits apart, if it has such a one."""
    return _PARTED.get(form, form)


@dataclass(frozen=True, slots=True)
class PackedRows:
    """Rows of a weight in one format.

    Attributes:
        data: (num_tiles, num_units, unit_bytes) uint8; rows beyond `num_rows` fill up the last tile.
        lower: (num_tiles, num_groups, lower_bytes) uint8, the bits that stand apart; None: none do.
    """

    data: Tensor
    form: Format
    num_rows: int
    lower: Tensor | None = None

    @property
    def num_groups(self) -> int:
        """Of a row."""
        return self.data.shape[1] * self.form.unit_groups

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All memory that they take."""
        return (self.data,) if self.lower is None else (self.data, self.lower)

    def between(self, start: int, stop: int) -> PackedRows:
        """Rows [start, stop) over the same memory; `start` is the first of a tile."""
        assert start % TILE_ROWS == 0
        tiles = slice(start // TILE_ROWS, -(-stop // TILE_ROWS))
        lower = None if self.lower is None else self.lower[tiles]
        return PackedRows(self.data[tiles], self.form, stop - start, lower)

    def without_lower(self) -> PackedRows:
        """The same rows by their upper four bits, over the same memory; where the lower ones stand apart."""
        assert self.form.lower == "apart"
        return PackedRows(self.data, replace(self.form, lower="unread"), self.num_rows)

    def tiles(self, numbers: npt.NDArray[np.int64]) -> PackedRows:
        """A copy of some tiles, made by this thread alone."""
        data, *lower = (torch.from_numpy(tensor.numpy()[numbers]) for tensor in self.tensors)
        return PackedRows(data, self.form, len(numbers) * TILE_ROWS, *lower)


@dataclass(frozen=True, slots=True)
class PackedWeight:
    """A weight (out_features, in_features) in packed form: rows below rows, which may differ in their format.

    Attributes:
        parts: all but the last end with a whole tile.
        shape: (out_features, in_features).
    """

    parts: tuple[PackedRows, ...]
    shape: tuple[int, int] = field(init=False)

    def __post_init__(self) -> None:
        first = self.parts[0]
        shape = sum(part.num_rows for part in self.parts), first.num_groups * first.form.group_size
        object.__setattr__(self, "shape", shape)

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.tensors)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All memory that it takes."""
        return tuple(tensor for part in self.parts for tensor in part.tensors)

    def rows(self, start: int, stop: int) -> PackedWeight:
        """Rows [start, stop) over the same memory; `start` is the first of a tile, `stop` may lie beyond the last."""
        chosen, first = [], 0
        for part in self.parts:
            low, high = max(start - first, 0), min(stop - first, part.num_rows)
            if low < high:
                chosen.append(part.between(low, high))
            first += part.num_rows
        return PackedWeight(tuple(chosen))


def joined(weights: Sequence[PackedWeight]) -> PackedWeight:
    """Weights one below the other, in new memory where neighbours have the same format and lie apart.

    Args:
        weights: all but the last with whole tiles.
    """
    assert all(weight.shape[0] % TILE_ROWS == 0 for weight in weights[:-1])
    parts: list[PackedRows] = []
    for form, group in groupby((part for weight in weights for part in weight.parts), key=lambda part: part.form):
        alike = list(group)
        if len(alike) == 1:
            parts += alike
        else:
            lower = [part.lower for part in alike if part.lower is not None]
            num_rows = sum(part.num_rows for part in alike)
            data = _below([part.data for part in alike])
            parts.append(PackedRows(data, form, num_rows, _below(lower) if lower else None))
    return PackedWeight(tuple(parts))


def _below(tiles: list[Tensor]) -> Tensor:
    """Tiles one below the other: where they lie so in memory already, that memory."""
    first, num_tiles = tiles[0], sum(each.shape[0] for each in tiles)
    ends = list(accumulate((each.nbytes for each in tiles), initial=first.data_ptr()))
    is_one = len({each.untyped_storage().data_ptr() for each in tiles}) == 1
    if is_one and [each.data_ptr() for each in tiles] == ends[:-1]:
        return first.as_strided((num_tiles, *first.shape[1:]), first.stride())
    return torch.cat(tiles)


def pack(
    codes: Tensor,
    scales: Tensor,
    offsets: Tensor | None,
    bits: int,
    units: tuple[Tensor, Tensor | None] | None = None,
    *,
    is_parted: bool = False,
) -> PackedWeight:
    """Pack the codes of a weight.

    Args:
        codes: (out_features, in_features) uint8.
        scales, offsets: (out_features, num_groups), float; kept in float16, or with `units` as whole numbers of 8 bits.
        bits: of a code: 4, 5, 6 or 8.
        units: what scales and offsets are multiplied by, (out_features, num_units) each, kept in float16.
        is_parted: lower bits stand apart, of six bits or eight without an offset.
    """
    form = FORMATS[bits, offsets is not None, units is not None]
    form = parted(form) if is_parted else form
    num_rows, num_columns = codes.shape
    num_groups = num_columns // form.group_size
    assert num_groups * form.group_size == num_columns
    num_tiles, num_units = -(-num_rows // TILE_ROWS), num_groups // form.unit_groups
    missing = num_tiles * TILE_ROWS - num_rows

    def tiled(factors: Tensor, dtype: torch.dtype) -> Tensor:
        """(rows, n) as bytes (tiles, n, bytes of a tile)."""
        wide = _with_rows(factors, missing).to(dtype).view(num_tiles, TILE_ROWS, -1).transpose(1, 2).contiguous()
        return wide.view(torch.uint8)

    data = torch.empty(num_tiles, num_units, form.unit_bytes, dtype=torch.uint8)
    own = [scales] if offsets is None else [scales, offsets]
    dtype = torch.float16 if units is None else torch.int8
    parts = [torch.cat([tiled(each, dtype) for each in own], dim=-1)]
    if units is not None:
        shared = [tiled(each, torch.float16) for each in units if each is not None]
        data[..., : form.unit_header_bytes] = torch.cat(shared, dim=-1)
    vectors = _with_rows(codes, missing).contiguous().view(torch.int32)
    vectors = vectors.view(num_tiles, TILE_ROWS, num_groups, form.num_chunks)
    # (num_tiles, num_groups, chunks, 16 rows x 4 inputs)
    chunks = vectors.permute(0, 2, 3, 1).contiguous().view(torch.uint8)
    num_lower = form.num_lower_bits
    parts.append(_shared(chunks >> num_lower, 4))
    lower = _shared(chunks & ((1 << num_lower) - 1), num_lower) if num_lower else None
    if lower is not None and form.lower == "beside":
        parts.append(lower)
        lower = None
    groups, at = data[..., form.unit_header_bytes :].unflatten(-1, (form.unit_groups, form.group_bytes)), 0
    for part in parts:
        groups[..., at : at + part.shape[-1]] = part.unflatten(1, (num_units, form.unit_groups))
        at += part.shape[-1]
    return PackedWeight((PackedRows(data, form, num_rows, lower),))


def _shared(chunks: Tensor, bits: int) -> Tensor:
    """(tiles, groups, chunks, 64) of so many bits each, as (tiles, groups, bytes): a byte holds them of 8 / bits."""
    apart = chunks.shape[2] * bits // 8  # chunks that share a vector are so many apart
    vectors = chunks.unflatten(2, (-1, apart))
    shared = vectors[:, :, 0].clone()
    for i in range(1, vectors.shape[2]):
        shared |= vectors[:, :, i] << bits * i
    return shared.flatten(2)


def _single(data: Tensor, bits: int) -> Tensor:
    """The inverse of `_shared`."""
    vectors = data.unflatten(2, (-1, VECTOR_BYTES))
    return torch.cat([vectors >> bits * i & ((1 << bits) - 1) for i in range(8 // bits)], dim=2)


def empty(form: Format, num_tiles: int = 1, num_units: int = 1) -> PackedWeight:
    """A weight of a format, all 0; the smallest one."""
    data = torch.zeros(num_tiles, num_units, form.unit_bytes, dtype=torch.uint8)
    sizes = num_tiles, num_units * form.unit_groups, form.lower_bytes
    lower = torch.zeros(sizes, dtype=torch.uint8) if form.lower == "apart" else None
    return PackedWeight((PackedRows(data, form, num_tiles * TILE_ROWS, lower),))


def unpack(weight: PackedWeight) -> Tensor:
    """The weight in float32, (out_features, in_features)."""
    return torch.cat([_unpack_rows(part) for part in weight.parts])


def _unpack_rows(rows: PackedRows) -> Tensor:
    form, num_tiles, num_groups = rows.form, rows.data.shape[0], rows.num_groups
    data = rows.data[..., form.unit_header_bytes :].unflatten(-1, (form.unit_groups, form.group_bytes)).flatten(1, 2)
    dtype = torch.int8 if form.in_two_steps else torch.float16
    factors = data[:, :, : form.header_bytes].contiguous().view(dtype).float()
    if form.in_two_steps:
        shared = rows.data[..., : form.unit_header_bytes].contiguous().view(torch.float16).float()
        factors = factors * shared.repeat_interleave(form.unit_groups, dim=1)
    factors = factors.view(num_tiles, num_groups, -1, TILE_ROWS).permute(2, 0, 3, 1)  # (1 or 2, tiles, rows, groups)
    upper, num_lower = data[:, :, form.header_bytes : form.header_bytes + form.plane_bytes], form.num_lower_bits
    codes = _single(upper, 4) << num_lower
    if num_lower and form.lower != "unread":
        beside = data[:, :, form.header_bytes + form.plane_bytes :]
        codes |= _single(beside if rows.lower is None else rows.lower, num_lower)
    # (tiles, groups, chunks, rows, 4) -> (tiles, rows, groups, chunks, 4)
    codes = codes.view(*codes.shape[:3], TILE_ROWS, _CHUNK).permute(0, 3, 1, 2, 4)
    values = codes.reshape(num_tiles, TILE_ROWS, num_groups, form.group_size).float()
    scales = factors[0].unsqueeze(-1)
    values = values * scales + factors[1].unsqueeze(-1) if form.has_offset else (values - form.middle) * scales
    return values.reshape(num_tiles * TILE_ROWS, -1)[: rows.num_rows]


def _with_rows(tensor: Tensor, missing: int) -> Tensor:
    if missing == 0:
        return tensor
    return torch.cat((tensor, tensor.new_zeros(missing, *tensor.shape[1:])))
