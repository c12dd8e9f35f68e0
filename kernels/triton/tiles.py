"""Sizes for which the Triton kernels are compiled."""

from __future__ import annotations

from typing import Any

import torch
from ondevice.kernels.backend import is_interpreted

# Of the layout that `kernels.int4` tells of.
TILE_ROWS = 8
GROUP_SIZE = 32  # inputs that share scale and zero
MIDDLE = 8  # the code whose weight is the zero

_TILE_BYTES = 16384  # of keys held at once; as much again of values


def tile_sizes(groups: int, head_dim: int, dtype: torch.dtype) -> dict[str, Any]:
    """Compile-time arguments: the sizes, and the same padded to the powers of two, at least 16, that `tl.dot` takes."""
    padded_dim = max(16, power_of_two(head_dim))
    # The interpreter would multiply the bit patterns of bfloat16 numbers.
    in_float32 = is_interpreted() or dtype == torch.float32
    return {
        "GROUPS": groups,
        "HEAD_DIM": head_dim,
        "PADDED_GROUPS": max(16, power_of_two(groups)),
        "PADDED_DIM": padded_dim,
        "TILE": min(64, max(16, _TILE_BYTES // (padded_dim * dtype.itemsize))),
        "IN_FLOAT32": in_float32,
    }


def power_of_two(number: int) -> int:
    """The smallest power of two that is not below `number`."""
    return 1 << (number - 1).bit_length()
