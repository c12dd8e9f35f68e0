"""Keys and values in 8 bits, and in 4: in the pot, and for what waits outside."""

import torch
from torch import Tensor


def quantize(x: Tensor) -> tuple[Tensor, Tensor]:
    """Round every vector to 255 steps between its largest absolute value and the negative of it.

    Args:
        x: (..., dim).

    Returns:
        Numbers (..., dim) int8 and scales (...,) float32, whose product is `x` again, to half a step.
    """
    wide = x.float()
    scales = wide.abs().amax(dim=-1) / 127
    # A vector of zeros has no scale, and needs none.
    return torch.round(wide / scales.clamp(min=torch.finfo(torch.float32).tiny)[..., None]).to(torch.int8), scales


def dequantize(numbers: Tensor, scales: Tensor, dtype: torch.dtype) -> Tensor:
    """The inverse of `quantize`, (..., dim) of `dtype`."""
    return (numbers.float() * scales[..., None]).to(dtype)


_GROUP = 32  # numbers that share a step in 4 bits
_LARGEST_HALF, _SMALLEST_HALF = 65504.0, 2.0**-24  # of float16


def num_groups(head_dim: int) -> int:
    """Groups of a vector in 4 bits; none reaches from its first half into the second."""
    half = head_dim // 2
    return 2 * (half // _GROUP if half % _GROUP == 0 else 1)


def quantize_four(x: Tensor) -> tuple[Tensor, Tensor]:
    """Round the numbers of every group to 16 steps between its smallest and its largest.

    Args:
        x: (..., dim), an even number.

    Returns:
        Codes (..., dim / 2) uint8, number i in the lower half of a byte and number i + head_dim / 2 in the upper;
        and (..., 2 * groups) float16, the step and the smallest number of each group.
    """
    grouped = x.float().unflatten(-1, (num_groups(x.shape[-1]), -1))
    # Not `aminmax`: it would wake torch's threads for a single token, and they go on spinning beside the helpers.
    low, high = grouped.amin(dim=-1), grouped.amax(dim=-1)
    low = low.clamp(-_LARGEST_HALF, _LARGEST_HALF).half()
    step = ((high - low.float()) / 15).clamp(_SMALLEST_HALF, _LARGEST_HALF).half()
    codes = ((grouped - low.float()[..., None]) / step.float()[..., None]).round_().clamp_(0, 15)
    first, second = codes.flatten(-2).to(torch.uint8).chunk(2, dim=-1)
    return first | second << 4, torch.stack((step, low), dim=-1).flatten(-2)


def dequantize_four(codes: Tensor, scales: Tensor, dtype: torch.dtype) -> Tensor:
    """The inverse of `quantize_four`, (..., dim) of `dtype`."""
    numbers = torch.cat((codes & 15, codes >> 4), dim=-1).float()
    step, low = scales.float().unflatten(-1, (-1, 2)).unbind(-1)
    grouped = numbers.unflatten(-1, (step.shape[-1], -1))
    return grouped.mul_(step[..., None]).add_(low[..., None]).flatten(-2).to(dtype)
