"""Keys and values in 8 bits, for what waits outside the pot."""

import torch
from torch import Tensor


def quantize(x: Tensor) -> tuple[Tensor, Tensor]:
    """Round every vector to 255 steps between its largest absolute value and the negative of it.

    Args:
        x: (..., head_dim).

    Returns:
        Numbers (..., head_dim) int8 and scales (...,) float32, whose product is `x` again, to half a step.
    """
    wide = x.float()
    scales = wide.abs().amax(dim=-1) / 127
    # A vector of zeros has no scale, and needs none.
    return torch.round(wide / scales.clamp(min=torch.finfo(torch.float32).tiny)[..., None]).to(torch.int8), scales


def quantize_ref(x: Tensor) -> tuple[Tensor, Tensor]:
    """Reference for `quantize`, vector by vector."""
    vectors = x.float().flatten(0, -2)
    numbers, scales = torch.zeros_like(vectors, dtype=torch.int8), torch.zeros(vectors.shape[0])
    for i, vector in enumerate(vectors):
        scales[i] = vector.abs().max() / 127
        if scales[i] > 0:
            numbers[i] = torch.round(vector / scales[i]).to(torch.int8)
    return numbers.view(x.shape), scales.view(x.shape[:-1])


def dequantize(numbers: Tensor, scales: Tensor, dtype: torch.dtype) -> Tensor:
    """The inverse of `quantize`, (..., head_dim) of `dtype`."""
    return (numbers.float() * scales[..., None]).to(dtype)
