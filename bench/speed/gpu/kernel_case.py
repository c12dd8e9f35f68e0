"""A comparison of a Triton kernel with its reference, and what counts as its error."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

TOLERANCES = {torch.float32: 1e-5, torch.bfloat16: 3e-2, torch.float16: 4e-3}


@dataclass(frozen=True, slots=True)
class KernelCase:
    """One comparison.

    Attributes:
        kernel: the name of the operation.
        name: the case, unique for the kernel.
        tolerance: what `error` may be.
        error: on a device, the largest of |difference| / (1 + |expected|); infinite where something else differs.
    """

    kernel: str
    name: str
    tolerance: float
    error: Callable[[torch.device], float]

    def __str__(self) -> str:
        return f"{self.kernel} {self.name}"


def error_of(out: Tensor, expected: Tensor, dtype: torch.dtype) -> float:
    """As `KernelCase.error`; `out` has to be of `dtype` and finite."""
    if out.dtype != dtype or not bool(out.isfinite().all()):
        return math.inf
    expected = expected.float().cpu()
    return float(((out.float().cpu() - expected).abs() / (1 + expected.abs())).max())
