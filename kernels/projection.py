"""Linear projections: on a CPU in float32 by oneDNN, which torch brings along, or with packed weights.

How packed weights are multiplied the environment variable KERNELS_PACKED decides: `rounded` rounds the activations
to bytes and multiplies those, `float32` unpacks the weights, slowly and exactly; `auto` (the default) is `rounded`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

import torch
import torch.nn.functional as F
from ondevice.kernels.packed import PackedWeight, unpack
from torch import Tensor

# `F.linear` leaves float32 to the BLAS library: MKL, which takes narrower vector instructions on processors that
# are not Intel's, and is slow everywhere for few tokens. oneDNN does neither. None where torch is built without it.
_ONEDNN_LINEAR = getattr(torch.ops.mkldnn, "_linear_pointwise", None) if torch.backends.mkldnn.is_available() else None


PACKED_CHOICES = ("auto", "rounded", "float32")


def project(x: Tensor, weight: Tensor | PackedWeight, bias: Tensor | None = None) -> Tensor:
    """x @ weight.T + bias.

    Args:
        x: (..., in_features).
        weight: (out_features, in_features); packed for float32 on a CPU only.
        bias: (out_features,).

    Returns:
        (..., out_features), a new tensor.

    Raises:
        ValueError: KERNELS_PACKED has an unknown value.
    """
    if isinstance(weight, PackedWeight):
        return _project_packed(x, weight, bias)
    if _ONEDNN_LINEAR is None or x.device.type != "cpu" or x.dtype != torch.float32 or x.numel() == 0:
        return F.linear(x, weight, bias)
    if x.dim() == 1:
        return _ONEDNN_LINEAR(x[None], weight, bias, "none", [], "")[0]
    return _ONEDNN_LINEAR(x, weight, bias, "none", [], "")


def prepare_packed(weights: Iterable[PackedWeight]) -> None:
    """Compile what `project` needs for these weights; later processes find it in Numba's cache."""
    from ondevice.kernels.cpu.packed_product import prepare

    prepare(weights)


def project_ref(x: Tensor, weight: Tensor | PackedWeight, bias: Tensor | None = None) -> Tensor:
    """Reference for `project`, in float32."""
    weight = unpack(weight) if isinstance(weight, PackedWeight) else weight
    return F.linear(x.float(), weight.float(), None if bias is None else bias.float()).to(x.dtype)


def _project_packed(x: Tensor, weight: PackedWeight, bias: Tensor | None) -> Tensor:
    choice = os.environ.get("KERNELS_PACKED", "auto")
    if choice not in PACKED_CHOICES:
        raise ValueError(f"KERNELS_PACKED is {choice!r}; it must be one of {', '.join(PACKED_CHOICES)}")
    if choice == "float32":
        return project_ref(x, weight, bias)
    # Imported here: Numba is loaded by those who compile.
    from ondevice.kernels.cpu.packed_product import multiply

    num_rows, num_columns = weight.shape
    return multiply(x.reshape(-1, num_columns).contiguous(), weight, bias).view(*x.shape[:-1], num_rows)
