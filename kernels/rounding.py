"""Rounding weights to the packed forms of `kernels.packed` and `kernels.int4`, group by group."""

from __future__ import annotations

from typing import Literal

import torch
from ondevice.kernels.int4 import MIDDLE, Int4Weight, joined_int4, pack_int4
from ondevice.kernels.packed import FORMATS, PackedWeight, joined, pack
from torch import Tensor

GROUP_SIZE = 32  # inputs that share a scale
_ROWS_AT_ONCE = 256  # whole tiles, as many as stay in a cache: four times as fast
_GPU_ROWS = 4096  # instead, where calls are what takes time
_ROUNDS = 3  # of least squares; more gain less than 1 % of the error
_SMALLEST = 2.0**-24  # of float16, for a group of equal weights


def quantize(weight: Tensor, bits: Literal[4, 8]) -> PackedWeight:
    """Round a weight: 8 bits by the largest magnitude of each group, 4 bits by least squares.

    Of normally distributed weights 8 bits lose 0.5 % (root of the mean square), 4 bits 7.3 %.

    Args:
        weight: (out_features, in_features), whole groups of inputs.

    Returns:
        the weight with 8 bits and a scale, or 4 bits, a scale and an offset for a group.
    """
    assert weight.shape[1] % GROUP_SIZE == 0
    rounded = _in_eight if bits == 8 else _in_four
    return joined([rounded(some.float()) for some in weight.split(_ROWS_AT_ONCE)])


def quantize_int4(weight: Tensor) -> Int4Weight:
    """As `quantize` with 4 bits, for `kernels.int4`: scales and zeros are rounded first, and codes are best for those.

    Args:
        weight: (out_features, in_features), of a shape that `suits_int4`, on any device.
    """
    rows = _ROWS_AT_ONCE if weight.device.type == "cpu" else _GPU_ROWS
    return joined_int4([_in_int4(some.float()) for some in weight.split(rows)])


def _in_eight(weight: Tensor) -> PackedWeight:
    grouped = weight.unflatten(1, (-1, GROUP_SIZE))
    scales = (grouped.abs().amax(dim=2) / 127).clamp_(min=_SMALLEST)
    codes = (grouped / scales[..., None]).round_().clamp_(-127, 127) + FORMATS[8, False, False].middle
    return pack(codes.to(torch.uint8).flatten(1), scales, None, 8)


def _in_four(weight: Tensor) -> PackedWeight:
    grouped, scales, offsets = _fitted(weight)
    codes = _codes(grouped, scales, offsets, FORMATS[4, True, False].largest)
    return pack(codes.to(torch.uint8).flatten(1), scales, offsets, 4)


def _in_int4(weight: Tensor) -> Int4Weight:
    grouped, scales, offsets = _fitted(weight)
    scales = scales.to(torch.bfloat16).float()
    zeros = (offsets + MIDDLE * scales).to(torch.bfloat16).float()
    codes = _codes(grouped, scales, zeros - MIDDLE * scales, FORMATS[4, True, False].largest)
    return pack_int4(codes.to(torch.uint8).flatten(1), scales, zeros)


def _fitted(weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The weight in groups (num_rows, num_groups, 32), scales and offsets of four bits, (num_rows, num_groups): by
    turns the best codes for those, and the best of those for the codes."""
    grouped = weight.unflatten(1, (-1, GROUP_SIZE))
    low, high = grouped.aminmax(dim=2)
    largest, mean = FORMATS[4, True, False].largest, grouped.mean(dim=2)
    scales, offsets = ((high - low) / largest).clamp_(min=_SMALLEST), low
    for _ in range(_ROUNDS):
        codes = _codes(grouped, scales, offsets, largest)
        mean_code = codes.mean(dim=2)
        spread = codes.square().mean(dim=2) - mean_code.square()
        slope = ((codes * grouped).mean(dim=2) - mean_code * mean) / spread
        scales = torch.where(spread > 0, slope, scales).clamp_(min=_SMALLEST)
        offsets = mean - scales * mean_code
    return grouped, scales, offsets


def _codes(grouped: Tensor, scales: Tensor, offsets: Tensor, largest: int) -> Tensor:
    return ((grouped - offsets[..., None]) / scales[..., None]).round_().clamp_(0, largest)
