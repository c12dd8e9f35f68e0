"""Root-mean-square norms, alone and with the residual sum that they follow in a model."""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from ondevice.kernels.backend import uses_triton
from torch import Tensor


@dataclass(frozen=True, slots=True)
class RMSNorm:
    """x / sqrt(mean(x^2) + eps) * weight over the last dimension, `weight` (size,)."""

    weight: Tensor
    eps: float

    def __call__(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)


def add_norm_(x: Tensor, residual: Tensor, norm: RMSNorm, before: RMSNorm | None = None) -> tuple[Tensor, Tensor]:
    """Add what a part of a layer gives to what went into it, and norm the sum for the part that follows.

    Args:
        x: (..., size), contiguous; its memory may hold the sum afterwards.
        residual: as `x`.
        norm: of the sum.
        before: of `x` alone, before it is added (Gemma-2); None: `x` is added as it is.

    Returns:
        The sum and its norm, both as `x`.
    """
    if uses_triton(x):
        # Imported here: Triton is not there on every machine.
        from ondevice.kernels.triton.add_norm import add_and_norm

        parts = None if before is None else (before.weight, before.eps)
        return add_and_norm(x, residual, norm.weight, norm.eps, parts)
    total = (x if before is None else before(x)).add_(residual)
    return total, norm(total)
