"""Choice of the implementation of an operation: torch, or a Triton kernel. One rule for all kernels.

The environment variable KERNELS_IMPL decides: `torch`, `triton`, or `auto` (the default), which takes Triton for
tensors on a CUDA device where Triton is installed and can compile, and torch for all others. What has no Triton kernel,
but one that Numba compiles for CPUs, takes that with `auto`.
"""

import importlib.util
import os
from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor

CHOICES = ("auto", "torch", "triton")


def uses_triton(tensor: Tensor) -> bool:
    """True if the Triton kernel is to work on `tensor`.

    Raises:
        ValueError: KERNELS_IMPL has an unknown value, or names Triton where it cannot run.
    """
    choice = _choice()
    if choice == "auto":
        return tensor.is_cuda and _has("triton") and _compiles(tensor.device)
    if choice == "triton":
        _require_triton(tensor)
    return choice == "triton"


def uses_numba(tensor: Tensor) -> bool:
    """True if a kernel for CPUs is to work on `tensor` where torch could do the same.

    Raises:
        ValueError: KERNELS_IMPL has an unknown value.
    """
    suits = tensor.device.type == "cpu" and tensor.dtype in (torch.float32, torch.bfloat16)
    return suits and _choice() == "auto" and _has("numba")


def is_interpreted() -> bool:
    """True if Triton kernels run in its interpreter, on any device, instead of being compiled."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def chosen(variable: str, choices: Sequence[str]) -> str:
    """The value of an environment variable, `auto` where it is not set.

    Raises:
        ValueError: it is none of `choices`.
    """
    choice = os.environ.get(variable, "auto")
    if choice not in choices:
        raise ValueError(f"{variable} is {choice!r}; it must be one of {', '.join(choices)}")
    return choice


def _choice() -> str:
    return chosen("KERNELS_IMPL", CHOICES)


def _require_triton(tensor: Tensor) -> None:
    if not _has("triton"):
        raise ValueError("KERNELS_IMPL is 'triton', and Triton is not installed")
    if not (tensor.is_cuda or is_interpreted()):
        raise ValueError(
            f"KERNELS_IMPL is 'triton', and Triton compiles nothing for {tensor.device.type!r}; "
            "set TRITON_INTERPRET=1 to run its kernels there, slowly"
        )


def _compiles(device: torch.device) -> bool:
    from ondevice.kernels.triton import probe

    # While a graph is recorded nothing else may be launched; what it records ran before.
    return torch.cuda.is_current_stream_capturing() or probe.works(device)


@cache
def _has(package: str) -> bool:
    return importlib.util.find_spec(package) is not None
