"""Linear projections: a matrix-vector product when there is one token, a matrix product otherwise."""

import torch
import torch.nn.functional as F
from torch import Tensor


def project(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x @ weight.T + bias.

    Decoding one token on a CPU is bound by reading the weights; there the matrix-vector routine of the BLAS library
    streams them faster than its matrix routine with a single row.

    Args:
        x: (..., in_features).
        weight: (out_features, in_features).
        bias: (out_features,).

    Returns:
        (..., out_features), a new tensor.
    """
    if x.device.type != "cpu" or x.numel() != x.shape[-1]:
        return F.linear(x, weight, bias)
    vector = x.flatten()
    out = torch.mv(weight, vector) if bias is None else torch.addmv(bias, weight, vector)
    return out.view(*x.shape[:-1], -1)


def project_ref(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Reference for `project`, in float32."""
    return F.linear(x.float(), weight.float(), None if bias is None else bias.float()).to(x.dtype)
