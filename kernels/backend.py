"""Which implementation runs an operation: torch, or a Triton kernel. One rule for all kernels.

The environment variable KERNELS_IMPL decides: `torch`, `triton`, or `auto` (the default), which takes Triton for
tensors on a CUDA device where Triton is installed, and torch for all others.
"""

import importlib.util
import os
from functools import cache

from torch import Tensor

CHOICES = ("auto", "torch", "triton")


def uses_triton(tensor: Tensor) -> bool:
    """Whether the Triton kernel is to work on `tensor`.

    Raises:
        ValueError: KERNELS_IMPL has an unknown value, or names Triton where it cannot run.
    """
    choice = os.environ.get("KERNELS_IMPL", "auto")
    if choice not in CHOICES:
        raise ValueError(f"KERNELS_IMPL is {choice!r}; it must be one of {', '.join(CHOICES)}")
    if choice == "auto":
        return tensor.is_cuda and _has_triton()
    if choice == "triton":
        _require_triton(tensor)
    return choice == "triton"


def is_interpreted() -> bool:
    """Whether Triton kernels run in its interpreter, on any device, instead of being compiled."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def _require_triton(tensor: Tensor) -> None:
    if not _has_triton():
        raise ValueError("KERNELS_IMPL is 'triton', and Triton is not installed")
    if not (tensor.is_cuda or is_interpreted()):
        raise ValueError(
            f"KERNELS_IMPL is 'triton', and Triton compiles nothing for {tensor.device.type!r}; "
            "set TRITON_INTERPRET=1 to run its kernels there, slowly"
        )


@cache
def _has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None
