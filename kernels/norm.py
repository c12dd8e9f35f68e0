"""Root-mean-square norm."""

import torch
import torch.nn.functional as F
from torch import Tensor


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x / sqrt(mean(x^2) + eps) * weight over the last dimension.

    A single float32 token on a CPU takes three small operations instead of the eight of torch's own: in decoding, two
    norms a layer add up.

    Args:
        x: (..., hidden_size).
        weight: (hidden_size,).
        eps: added to the mean square.

    Returns:
        A new tensor with the shape and dtype of `x`.
    """
    if x.device.type != "cpu" or x.dtype != torch.float32 or x.numel() != x.shape[-1]:
        return F.rms_norm(x, weight.shape, weight, eps)
    vector = x.flatten()
    mean_square = float(torch.dot(vector, vector)) / vector.numel()
    return (x * weight).mul_((mean_square + eps) ** -0.5)


def rms_norm_ref(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Reference for `rms_norm`, in float32."""
    mean_square = x.float().square().mean(dim=-1, keepdim=True)
    return (x.float() * torch.rsqrt(mean_square + eps) * weight.float()).to(x.dtype)
