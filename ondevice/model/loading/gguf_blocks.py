"""The quantised blocks of a GGUF tensor as codes, scales and offsets, in which they can be packed as they are.

Nothing is quantised a second time: codes and scales are those of the file. Layouts: https://github.com/ggml-org/ggml/blob/master/src/ggml-common.h
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ondevice.kernels.int4 import MIDDLE, Int4Weight, joined_int4, pack_int4
from ondevice.kernels.mxfp4 import MXFP4_BITS, mxfp4_codes
from ondevice.kernels.packed import TILE_ROWS, PackedRows, PackedWeight, pack

ROWS_AT_ONCE = 4096  # what lies around meanwhile takes several times the memory of the rows


class Blocks(NamedTuple):
    """Quantised rows: weight = scale * code + offset, or scale * (code - 2^(bits - 1)) without offsets.

    Attributes:
        codes: (num_rows, num_columns) uint8.
        scales, offsets: (num_rows, num_groups) float32; with `units` whole numbers that are multiplied by those.
        units: (num_rows, num_blocks) float32, one of scales and one of offsets.
    """

    codes: Tensor
    scales: Tensor
    offsets: Tensor | None
    bits: int
    units: tuple[Tensor, Tensor | None] | None = None

    def factors(self) -> tuple[Tensor, Tensor | None]:
        """Scales and offsets, multiplied out."""
        if self.units is None:
            return self.scales, self.offsets
        per_unit = self.scales.shape[1] // self.units[0].shape[1]
        scales, offsets = (
            None if own is None or unit is None else own * unit.repeat_interleave(per_unit, dim=1)
            for own, unit in zip((self.scales, self.offsets), self.units, strict=True)
        )
        assert scales is not None
        return scales, offsets


class BlockType(NamedTuple):
    """A quantisation type of ggml: bytes of a block, its values, and what reads (num_rows, num_blocks, bytes)."""

    num_bytes: int
    num_values: int
    read: Callable[[Tensor], Blocks]

    def blocks(self, raw: Tensor, num_columns: int) -> Tensor:
        """Rows (num_rows, bytes of a row) uint8 as (num_rows, num_blocks, num_bytes)."""
        return raw.view(raw.shape[0], num_columns // self.num_values, self.num_bytes)


def pack_rows(raw: Tensor, kind: int, num_columns: int, *, is_parted: bool = False) -> PackedWeight:
    """Pack the rows of a tensor as they are stored.

    Args:
        raw: (num_rows, bytes of a row) uint8.
        kind: ggml's number of the type, one of `BLOCK_TYPES`.
        is_parted: lower bits stand apart, as `pack` says.
    """
    block_type = BLOCK_TYPES[kind]
    rows: PackedRows | None = None
    for number, some in enumerate(block_type.blocks(raw, num_columns).split(ROWS_AT_ONCE)):
        (part,) = pack(*block_type.read(some), is_parted=is_parted).parts
        if rows is None:
            # One place for all from the start: a head that is laid together in the end is there twice.
            num_tiles = -(-raw.shape[0] // TILE_ROWS)
            data, *lower = (tensor.new_empty(num_tiles, *tensor.shape[1:]) for tensor in part.tensors)
            rows = PackedRows(data, part.form, raw.shape[0], *lower)
        at = number * ROWS_AT_ONCE // TILE_ROWS
        for whole, tensor in zip(rows.tensors, part.tensors, strict=True):
            whole[at : at + tensor.shape[0]] = tensor
    assert rows is not None, "a tensor has rows"
    return PackedWeight((rows,))


def int4_rows(raw: Tensor, kind: int, num_columns: int) -> Int4Weight:
    """The rows of a tensor of one of `INT4_TYPES` in four bits for a GPU: the codes of the file, scales and zeros
    rounded to bfloat16, which moves weights about as far as rounding themselves to bfloat16 does.

    Args:
        raw: as for `pack_rows`, on the device that takes them.
    """
    block_type = BLOCK_TYPES[kind]
    blocks = block_type.blocks(raw, num_columns).split(ROWS_AT_ONCE)
    return joined_int4([_int4(block_type.read(some)) for some in blocks])


def _int4(blocks: Blocks) -> Int4Weight:
    scales, offsets = blocks.factors()
    zeros = torch.zeros_like(scales) if offsets is None else offsets + MIDDLE * scales
    return pack_int4(blocks.codes, scales, zeros)


def dequantize_rows(raw: Tensor, kind: int, num_columns: int) -> Tensor:
    """The values of some rows, (num_rows, num_columns) float32."""
    block_type = BLOCK_TYPES[kind]
    blocks = block_type.read(block_type.blocks(raw, num_columns))
    codes, bits = blocks.codes, blocks.bits
    scales, offsets = blocks.factors()
    values = codes.view(*scales.shape, -1).float()
    if offsets is None:
        values = (values - (1 << (bits - 1))) * scales.unsqueeze(-1)
    else:
        values = values * scales.unsqueeze(-1) + offsets.unsqueeze(-1)
    return values.view(codes.shape)


def _float(blocks: Tensor, at: int) -> Tensor:
    """The float16 at a byte of every block, (num_rows, num_blocks) float32."""
    return blocks[..., at : at + 2].contiguous().view(torch.float16).squeeze(-1).float()


def _nibbles(data: Tensor) -> Tensor:
    """(..., n) bytes -> (..., 2 * n): all lower halves, then all upper ones."""
    return torch.cat((data & 15, data >> 4), dim=-1)


def _fifth_bits(data: Tensor) -> Tensor:
    """(..., 4) bytes -> (..., 32) bytes of 0 or 16: one bit each, the lowest first."""
    bits = torch.arange(8, dtype=torch.uint8)
    return ((data.unsqueeze(-1) >> bits & 1) << 4).flatten(-2)


def _legacy(bits: int, has_offset: bool) -> Callable[[Tensor], Blocks]:
    """Q4_0, Q4_1, Q5_0 and Q5_1: scale, offset, fifth bits and nibbles of 32 values."""

    def read(blocks: Tensor) -> Blocks:
        at = 4 if has_offset else 2
        codes = _nibbles(blocks[..., -16:])
        if bits == 5:
            codes |= _fifth_bits(blocks[..., at : at + 4])
        return Blocks(codes.flatten(1), _float(blocks, 0), _float(blocks, 2) if has_offset else None, bits)

    return read


def _q8_0(blocks: Tensor) -> Blocks:
    codes = blocks[..., 2:] ^ 128  # signed, moved up by 128
    return Blocks(codes.flatten(1), _float(blocks, 0), None, 8)


def _k_scales(data: Tensor) -> tuple[Tensor, Tensor]:
    """(..., 12) bytes of 6 bits each -> 8 scales and 8 minima, (..., 8) float32."""
    scales, minima, upper = data.split(4, dim=-1)
    return (
        torch.cat((scales & 63, (upper & 15) | (scales >> 2 & 48)), dim=-1).float(),
        torch.cat((minima & 63, (upper >> 4) | (minima >> 2 & 48)), dim=-1).float(),
    )


def _k(bits: int) -> Callable[[Tensor], Blocks]:
    """Q4_K and Q5_K: scale of scales and of minima, those, fifth bits and nibbles of 8 times 32 values."""

    def read(blocks: Tensor) -> Blocks:
        scales, minima = _k_scales(blocks[..., 4:16])
        codes = _nibbles(blocks[..., -128:].unflatten(-1, (4, 32)))  # two groups in 32 bytes
        if bits == 5:
            shifts = torch.arange(8, dtype=torch.uint8)[:, None]
            codes |= ((blocks[..., 16:48].unsqueeze(-2) >> shifts & 1) << 4).reshape(codes.shape)
        units = _float(blocks, 0), -_float(blocks, 2)
        return Blocks(codes.flatten(1), scales.flatten(1), minima.flatten(1), bits, units)

    return read


def _q6_k(blocks: Tensor) -> Blocks:
    scales = blocks[..., 192:208].contiguous().view(torch.int8).float()
    lower = _nibbles(blocks[..., :128].unflatten(-1, (2, 64)))
    shifts = torch.arange(0, 8, 2, dtype=torch.uint8)[:, None]
    upper = blocks[..., 128:192].unflatten(-1, (2, 1, 32)) >> shifts & 3
    codes = lower | upper.reshape(lower.shape) << 4
    return Blocks(codes.flatten(1), scales.flatten(1), None, 6, (_float(blocks, 208), None))


def _mxfp4(blocks: Tensor) -> Blocks:
    codes, scales = mxfp4_codes(_nibbles(blocks[..., 1:]).flatten(1), blocks[..., 0])
    return Blocks(codes, scales, None, MXFP4_BITS)


BLOCK_TYPES = {
    2: BlockType(18, 32, _legacy(4, has_offset=False)),  # Q4_0
    3: BlockType(20, 32, _legacy(4, has_offset=True)),  # Q4_1
    6: BlockType(22, 32, _legacy(5, has_offset=False)),  # Q5_0
    7: BlockType(24, 32, _legacy(5, has_offset=True)),  # Q5_1
    8: BlockType(34, 32, _q8_0),
    12: BlockType(144, 256, _k(4)),
    13: BlockType(176, 256, _k(5)),
    14: BlockType(210, 256, _q6_k),
    39: BlockType(17, 32, _mxfp4),
}
INT4_TYPES = frozenset((2, 3, 12))  # Q4_0, Q4_1, Q4_K: four bits in groups of 32
