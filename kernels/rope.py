"""Rotary position embedding (RoPE) on keys and queries.

The half-split layout of the Hugging Face checkpoints: dimension i turns together with dimension i + d/2.
"""

import torch
from ondevice.kernels.backend import uses_triton
from torch import Tensor


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Return `x` turned by the angles whose cosines and sines are given: x * cos + rotate_half(x) * sin.

    Args:
        x: (..., dim). Only the first `cos.shape[-1]` dimensions turn (partial rotary embedding).
        cos: broadcastable to (..., rotary_dim).
        sin: as `cos`, and signed: its first half is already negated, so that one roll replaces rotate_half.

    Returns:
        A new tensor with the shape and dtype of `x`.
    """
    rotary_dim = cos.shape[-1]
    if x.dim() == 4 and uses_triton(x):
        # Imported here: Triton is not there on every machine.
        from ondevice.kernels.triton.rope import turn

        return turn(x, cos, sin)
    if rotary_dim < x.shape[-1]:
        turned = rotate(x[..., :rotary_dim], cos, sin)
        return torch.cat((turned, x[..., rotary_dim:]), dim=-1)
    return torch.addcmul(x * cos, x.roll(rotary_dim // 2, dims=-1), sin)


def rotate_half(x: Tensor, rotary_dim: int) -> Tensor:
    """The part of RoPE that no position changes: halves of the first `rotary_dim` dimensions swapped, 0 after them.

    Without the usual sign, which `signed_sine` carries. EQUIP caches it, so that keys whose positions change every
    step need not be turned over every step.
    """
    half = torch.zeros_like(x)
    half[..., :rotary_dim] = x[..., :rotary_dim].roll(rotary_dim // 2, dims=-1)
    return half


def rotate_with_half_(out: Tensor, x: Tensor, half: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Write x * cos + half * sin into `out`: `rotate` with `rotate_half(x)` at hand; shapes as there."""
    rotary_dim = cos.shape[-1]
    torch.mul(x[..., :rotary_dim], cos, out=out[..., :rotary_dim])
    out[..., :rotary_dim].addcmul_(half[..., :rotary_dim], sin)
    out[..., rotary_dim:] = x[..., rotary_dim:]
    return out


def signed_sine(sin: Tensor) -> Tensor:
    """Negate the first half of `sin` (..., rotary_dim), the form that `rotate` takes."""
    first, second = sin.chunk(2, dim=-1)
    return torch.cat((-first, second), dim=-1)


def rows_of(table: Tensor, positions: Tensor) -> Tensor:
    """The rows of a table (num_positions, rotary_dim) at `positions` (...) integers: (..., rotary_dim), a copy.

    Whole rows are copied, which is several times as fast as `table[positions]` on a CPU.
    """
    return table.index_select(0, positions.flatten()).view(*positions.shape, table.shape[-1])
