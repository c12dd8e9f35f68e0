"""MXFP4 of the OCP Microscaling Formats: 32 numbers of four bits each, and one exponent that they share.

Twice such a number is whole and at most 12, so that five bits with a scale hold it as it is (`kernels.packed`).
"""

from __future__ import annotations

import torch
from ondevice.kernels.packed import FORMATS, PackedWeight, pack
from torch import Tensor

MXFP4_BITS = 5
_GROUP_SIZE = 32  # numbers that share an exponent
_MIDDLE = FORMATS[MXFP4_BITS, False, False].middle
# Twice the number, by its four bits: the sign, two of exponent, one of fraction.
_TWICE = torch.tensor([0, 1, 2, 3, 4, 6, 8, 12])
_CODES = (_MIDDLE + torch.cat((_TWICE, -_TWICE))).to(torch.uint8)
_SMALLEST, _LARGEST = -24.0, 15.0  # powers of two that float16 has


def mxfp4_codes(numbers: Tensor, exponents: Tensor) -> tuple[Tensor, Tensor]:
    """Codes of five bits and their scales: weight = scale * (code - 16).

    Args:
        numbers: (num_rows, num_columns) uint8, below 16.
        exponents: (num_rows, num_groups) uint8, of 2, and 127 more than they are.

    Returns:
        (num_rows, num_columns) uint8, and (num_rows, num_groups) float32, which float16 can hold.
    """
    return _CODES.to(numbers.device)[numbers.int()], torch.exp2((exponents.float() - 128).clamp_(max=_LARGEST))


def mxfp4_weights(blocks: Tensor, exponents: Tensor) -> Tensor:
    """Weights as checkpoints store them.

    Args:
        blocks: (num_rows, num_groups, 16) uint8, two numbers a byte, that of the lower half first.
        exponents: as of `mxfp4_codes`.

    Returns:
        (num_rows, num_groups * 32) bfloat16, which has them all.
    """
    codes, scales = mxfp4_codes(torch.stack((blocks & 15, blocks >> 4), dim=-1).flatten(1), exponents)
    twice = (codes.to(torch.bfloat16) - _MIDDLE).unflatten(1, (-1, _GROUP_SIZE))
    return (twice * scales.to(torch.bfloat16)[..., None]).flatten(1)


def pack_mxfp4(weight: Tensor) -> PackedWeight:
    """Pack a weight of `mxfp4_weights`, (num_rows, num_columns), as it is."""
    grouped = weight.float().unflatten(1, (-1, _GROUP_SIZE))
    # With the largest number of a group at 8 to 15 all others are whole, too.
    exponents = torch.floor(torch.log2(grouped.abs().amax(dim=2))) - 3
    scales = torch.exp2(exponents.clamp_(_SMALLEST, _LARGEST))
    codes = (grouped / scales[..., None]).round_() + _MIDDLE
    return pack(codes.to(torch.uint8).flatten(1), scales, None, MXFP4_BITS)
