"""Linear projections, for any number of tokens: on a CPU few tokens take another way than many."""

import torch
import torch.nn.functional as F
from torch import Tensor

# So many tokens go through the matrix product with the weights on its left: see `project`.
_FEW = range(4, 33)


def project(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x @ weight.T + bias.

    A few tokens on a CPU (decoding, a question) are bound by reading the weights. For one, the matrix-vector routine
    of the BLAS library streams them faster than its matrix routine; for a handful, that routine is faster with the
    weights as its left matrix, up to twice.

    Args:
        x: (..., in_features).
        weight: (out_features, in_features).
        bias: (out_features,).

    Returns:
        (..., out_features), a new tensor.
    """
    num_tokens = x.numel() // x.shape[-1]
    if x.device.type != "cpu" or (num_tokens != 1 and num_tokens not in _FEW):
        return F.linear(x, weight, bias)
    if num_tokens == 1:
        vector = x.flatten()
        out = torch.mv(weight, vector) if bias is None else torch.addmv(bias, weight, vector)
    else:
        columns = x.reshape(num_tokens, -1).T
        out = torch.mm(weight, columns) if bias is None else torch.addmm(bias[:, None], weight, columns)
        out = out.T.contiguous()
    return out.view(*x.shape[:-1], -1)


def project_ref(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Reference for `project`, in float32."""
    return F.linear(x.float(), weight.float(), None if bias is None else bias.float()).to(x.dtype)
