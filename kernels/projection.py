"""Linear projections: on a CPU in float32 by oneDNN, which torch brings along."""

import torch
import torch.nn.functional as F
from torch import Tensor

# `F.linear` leaves float32 to the BLAS library: MKL, which takes narrower vector instructions on processors that
# are not Intel's, and is slow everywhere for few tokens. oneDNN does neither. None where torch is built without it.
_ONEDNN_LINEAR = getattr(torch.ops.mkldnn, "_linear_pointwise", None) if torch.backends.mkldnn.is_available() else None


def project(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x @ weight.T + bias.

    Args:
        x: (..., in_features).
        weight: (out_features, in_features).
        bias: (out_features,).

    Returns:
        (..., out_features), a new tensor.
    """
    if _ONEDNN_LINEAR is None or x.device.type != "cpu" or x.dtype != torch.float32 or x.numel() == 0:
        return F.linear(x, weight, bias)
    if x.dim() == 1:
        return _ONEDNN_LINEAR(x[None], weight, bias, "none", [], "")[0]
    return _ONEDNN_LINEAR(x, weight, bias, "none", [], "")


def project_ref(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Reference for `project`, in float32."""
    return F.linear(x.float(), weight.float(), None if bias is None else bias.float()).to(x.dtype)
