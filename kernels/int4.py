"""Weights of four bits in groups of 32 as torch's own kernels (tinygemm) multiply them on an NVIDIA GPU.

A weight is (code - 8) * scale + zero, scale and zero in bfloat16, computed and rounded to bfloat16 at once. Codes lie
as a tensor core takes them: 8 rows (outputs) by 32 inputs are 32 words, of which word t holds row t // 4 and eight
inputs, 2 * (t % 4) + 0, 8, 16, 24, 1, 9, 17, 25, the first of them in the lowest bits. That is what
`torch._convert_weight_to_int4pack` makes of them; here any device can.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

import torch
import torch.nn.functional as F
from ondevice.kernels.backend import uses_triton
from ondevice.kernels.triton.tiles import GROUP_SIZE, MIDDLE, TILE_ROWS
from torch import Tensor

_WORDS = 32  # of a tile and a group
_FEW = 64  # tokens up to which tinygemm, made for a few, is taken to be the faster way
_WIDE = 1 << 25  # weights that are made wide at once where there are more
WIDE_BYTES = 2 * _WIDE


@dataclass(frozen=True, slots=True)
class Int4Rows:
    """Rows of a weight in four bits.

    Attributes:
        codes: (num_rows / 8, num_columns / (32 * depth), 32, depth) int32; a thread reads `depth` words at once.
        factors: (num_columns / 32, num_rows, 2) bfloat16: scale and zero.
    """

    codes: Tensor
    factors: Tensor

    @property
    def shape(self) -> tuple[int, int]:
        return self.factors.shape[1], self.factors.shape[0] * GROUP_SIZE

    def between(self, start: int, stop: int) -> Int4Rows:
        """Rows [start, stop), whole tiles, over the same memory."""
        assert start % TILE_ROWS == stop % TILE_ROWS == 0
        return Int4Rows(self.codes[start // TILE_ROWS : stop // TILE_ROWS], self.factors[:, start:stop])


@dataclass(frozen=True, slots=True)
class Int4Weight:
    """A weight (out_features, in_features), rows below rows: in four bits, or as they are.

    Attributes:
        parts: rows in four bits, or a tensor (num_rows, in_features) in bfloat16.
        shape: (out_features, in_features).
    """

    parts: tuple[Int4Rows | Tensor, ...]
    shape: tuple[int, int] = field(init=False)

    def __post_init__(self) -> None:
        shape = sum(part.shape[0] for part in self.parts), self.parts[0].shape[1]
        object.__setattr__(self, "shape", shape)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All memory that it takes."""
        of_parts = ((part,) if isinstance(part, Tensor) else (part.codes, part.factors) for part in self.parts)
        return tuple(tensor for some in of_parts for tensor in some)


def suits_int4(num_rows: int, num_columns: int) -> bool:
    """True if a weight of this shape has whole tiles and groups."""
    return num_rows % TILE_ROWS == 0 and num_columns % GROUP_SIZE == 0


def int4_bytes(num_weights: int) -> int:
    """Memory of so many weights in four bits, with their scales and zeros."""
    return num_weights // 2 + 4 * (num_weights // GROUP_SIZE)


def pack_int4(codes: Tensor, scales: Tensor, zeros: Tensor) -> Int4Weight:
    """Lay out the codes of a weight.

    Args:
        codes: (out_features, in_features) uint8, below 16; `suits_int4`.
        scales, zeros: (out_features, num_groups), float; kept in bfloat16.
    """
    num_rows, num_columns = codes.shape
    assert suits_int4(num_rows, num_columns)
    num_groups = num_columns // GROUP_SIZE
    depth = max(depth for depth in (1, 2, 4) if num_groups % depth == 0)
    # An input is 8 a + 2 b + c of its group: word (row, b), four bits number 4 c + a.
    parts = codes.view(num_rows // TILE_ROWS, TILE_ROWS, num_groups, 4, 4, 2).permute(0, 2, 1, 4, 5, 3)
    nibbles = parts.reshape(-1, 8)
    words = (nibbles[:, 0::2] | nibbles[:, 1::2] << 4).contiguous().view(torch.int32)
    words = words.view(num_rows // TILE_ROWS, num_groups // depth, depth, _WORDS).transpose(2, 3)
    factors = torch.stack((scales, zeros), dim=-1).transpose(0, 1).to(torch.bfloat16)
    return Int4Weight((Int4Rows(words.contiguous(), factors.contiguous()),))


def unpack_int4(rows: Int4Rows) -> Tensor:
    """The codes, (num_rows, num_columns) uint8."""
    num_rows, num_columns = rows.shape
    words = rows.codes.transpose(2, 3).contiguous().view(torch.uint8)
    nibbles = torch.stack((words & 15, words >> 4), dim=-1).view(num_rows // TILE_ROWS, -1, TILE_ROWS, 4, 2, 4)
    return nibbles.permute(0, 2, 1, 5, 3, 4).reshape(num_rows, num_columns)


def widened(rows: Int4Rows) -> Tensor:
    """The weights, (num_rows, num_columns) bfloat16, each rounded once, as the product has them."""
    if uses_triton(rows.codes):
        # Imported here: Triton is not there on every machine.
        from ondevice.kernels.triton.int4 import widen

        return widen(rows.codes, rows.factors)
    return widened_ref(rows)


def widened_ref(rows: Int4Rows) -> Tensor:
    """Reference for `widened`."""
    scales, zeros = rows.factors.float().transpose(0, 1).unsqueeze(-1).unbind(2)
    codes = unpack_int4(rows).unflatten(1, (-1, GROUP_SIZE)).float()
    return ((codes - MIDDLE) * scales + zeros).flatten(1).to(torch.bfloat16)


def joined_int4(weights: Sequence[Int4Weight | Tensor]) -> Int4Weight:
    """Weights one below the other; neighbours in four bits in new memory."""
    parts: list[Int4Rows | Tensor] = []
    for part in (part for one in weights for part in (one.parts if isinstance(one, Int4Weight) else (one,))):
        above = parts[-1] if parts else None
        if isinstance(part, Int4Rows) and isinstance(above, Int4Rows):
            codes, factors = torch.cat((above.codes, part.codes)), torch.cat((above.factors, part.factors), dim=1)
            parts[-1] = Int4Rows(codes, factors)
        else:
            parts.append(part)
    return Int4Weight(tuple(parts))


def project_int4(x: Tensor, weight: Int4Weight, bias: Tensor | None) -> Tensor:
    """As `project`, (..., in_features) bfloat16: a few tokens by tinygemm, many with weights that are made wide before,
    a slice of them after the other."""
    flat = x.reshape(-1, x.shape[-1])
    outs = [_product(flat, part) for part in weight.parts]
    out = outs[0] if len(outs) == 1 else torch.cat(outs, dim=-1)
    return (out if bias is None else out.add_(bias)).view(*x.shape[:-1], -1)


def tinygemm(x: Tensor, rows: Int4Rows) -> Tensor:
    """(n, in_features) bfloat16 on an NVIDIA GPU -> (n, num_rows), by torch's own kernel."""
    out: Tensor = torch.ops.aten._weight_int4pack_mm(x.contiguous(), rows.codes, GROUP_SIZE, rows.factors)
    return out


def _product(x: Tensor, part: Int4Rows | Tensor) -> Tensor:
    if isinstance(part, Tensor):
        return F.linear(x, part)
    if x.is_cuda and x.shape[0] <= _FEW:
        return tinygemm(x, part)
    num_rows, num_columns = part.shape
    step = max(_WIDE // num_columns // TILE_ROWS * TILE_ROWS, TILE_ROWS)
    slices = range(0, num_rows, step)
    outs = [F.linear(x, widened(part.between(start, min(start + step, num_rows)))) for start in slices]
    return outs[0] if len(outs) == 1 else torch.cat(outs, dim=-1)


@cache
def lacks_int4(device: torch.device) -> str:
    """Why tinygemm cannot be used on a GPU that is there, "" where it can: asked once, with a product of a few rows."""
    if torch.version.hip is not None:
        return "it is laid out for NVIDIA GPUs"
    if torch.cuda.get_device_capability(device) < (8, 0):
        return "it needs a GPU of compute capability 8.0 or more"
    generator = torch.Generator().manual_seed(0)
    codes = torch.randint(0, 16, (16, 64), generator=generator, dtype=torch.uint8)
    scales, zeros = torch.rand(2, 16, 2, generator=generator)
    x, weight = torch.randn(3, 64, generator=generator).to(torch.bfloat16), pack_int4(codes, scales, zeros)
    (rows,) = weight.parts
    assert isinstance(rows, Int4Rows)
    expected = F.linear(x.float(), widened_ref(rows).float())
    try:
        there = Int4Weight((Int4Rows(rows.codes.to(device), rows.factors.to(device)),))
        out = project_int4(x.to(device), there, None).cpu()
    except Exception as error:  # of a build without it, or of the driver: none is a reason to fail
        return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:200]}"
    return "" if torch.allclose(out.float(), expected, rtol=2e-2, atol=2e-1) else "its results are wrong here"
