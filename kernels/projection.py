"""Linear projections: on a CPU in float32 by oneDNN or MKL, which torch brings along, or with packed weights.

Which library multiplies float32 on a CPU the environment variable KERNELS_GEMM decides: `onednn`, `mkl`, or `auto`
(the default), which takes the one that suits the processor's maker, the number of tokens and the size of the weight.
How packed weights are multiplied the environment variable KERNELS_PACKED decides: `rounded` rounds the activations
to bytes and multiplies those, `float32` unpacks the weights, slowly and exactly; `auto` (the default) is `rounded`.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import torch
import torch.nn.functional as F
from ondevice.kernels.backend import chosen, uses_numba
from ondevice.kernels.cpu.threads import takes_helpers, torch_has_worked
from ondevice.kernels.int4 import Int4Weight, project_int4
from ondevice.kernels.packed import PackedWeight, unpack
from torch import Tensor

# None where torch is built without it.
_ONEDNN_LINEAR = getattr(torch.ops.mkldnn, "_linear_pointwise", None) if torch.backends.mkldnn.is_available() else None
_MANY = 128  # tokens from which MKL is the faster one on Intel's processors
_SMALL = 256 * 1024  # weights under which MKL is: oneDNN takes 30 to 60 us for a call, whatever it multiplies

PACKED_CHOICES = ("auto", "rounded", "float32")
GEMM_CHOICES = ("auto", "onednn", "mkl")


def project(x: Tensor, weight: Tensor | PackedWeight | Int4Weight, bias: Tensor | None = None) -> Tensor:
    """x @ weight.T + bias.

    Args:
        x: (..., in_features).
        weight: (out_features, in_features); packed for float32 on a CPU only, in four bits of `kernels.int4` for
            bfloat16 elsewhere.
        bias: (out_features,).

    Returns:
        (..., out_features), a new tensor.

    Raises:
        ValueError: KERNELS_PACKED or KERNELS_GEMM has an unknown value.
    """
    if isinstance(weight, PackedWeight):
        return _project_packed(x, weight, bias)
    if isinstance(weight, Int4Weight):
        return project_int4(x, weight, bias)
    torch_has_worked()
    suits_onednn = x.device.type == "cpu" and x.dtype == torch.float32 and x.numel() > 0
    if _ONEDNN_LINEAR is None or not suits_onednn or _takes_mkl(x.numel() // x.shape[-1], weight.numel()):
        return F.linear(x, weight, bias)  # in float32 torch leaves it to its BLAS library
    if x.dim() == 1:
        return _ONEDNN_LINEAR(x[None], weight, bias, "none", [], "")[0]
    return _ONEDNN_LINEAR(x, weight, bias, "none", [], "")


def prepare_packed(weights: Iterable[PackedWeight]) -> None:
    """Compile what `project` needs for these weights; later processes find it in Numba's cache."""
    from ondevice.kernels.cpu.packed_product import prepare

    prepare(weights)


def rounds_activations(weight: Tensor | PackedWeight | Int4Weight) -> bool:
    """True if `project` rounds activations for this weight: then attention need not be more exact either."""
    return isinstance(weight, PackedWeight) and chosen("KERNELS_PACKED", PACKED_CHOICES) != "float32"


def runs_calls(x: Tensor) -> bool:
    """True if kernels for float32 on a CPU, with packed products, may be run as `kernels.cpu.calls` lays them out.

    Raises:
        ValueError: KERNELS_IMPL, KERNELS_PACKED or KERNELS_THREADS has an unknown value.
    """
    is_rounded = chosen("KERNELS_PACKED", PACKED_CHOICES) != "float32"
    return is_rounded and x.dtype == torch.float32 and uses_numba(x) and takes_helpers()


def _takes_mkl(num_tokens: int, num_weights: int) -> bool:
    """True if MKL is to multiply: it takes narrower vectors on processors that are not Intel's, and is slow for few."""
    choice = chosen("KERNELS_GEMM", GEMM_CHOICES)
    if choice != "auto" or not torch.backends.mkl.is_available():
        return choice == "mkl"
    return num_weights < _SMALL or (num_tokens >= _MANY and is_intel())


@cache
def is_intel() -> bool:
    """True if Intel made this processor; no where the system does not tell."""
    try:
        return "GenuineIntel" in Path("/proc/cpuinfo").read_text()
    except OSError:
        return "GenuineIntel" in platform.processor()


def _project_packed(x: Tensor, weight: PackedWeight, bias: Tensor | None) -> Tensor:
    if chosen("KERNELS_PACKED", PACKED_CHOICES) == "float32":
        return F.linear(x, unpack(weight), bias)
    # Imported here: Numba is loaded by those who compile.
    from ondevice.kernels.cpu.packed_product import multiply

    num_rows, num_columns = weight.shape
    return multiply(x.reshape(-1, num_columns).contiguous(), weight, bias).view(*x.shape[:-1], num_rows)
