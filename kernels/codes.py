"""Keys and values in 8 bits: how they are rounded, and what belongs together.

A key lies before RoPE, measured from what is usual for its head: channel by channel a mean and a spread, the frame.
Without it a few channels that are always large take up all steps, and the errors of the scores are ten times as large.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from ondevice.kernels.quantize import dequantize, quantize
from torch import Tensor


class Frame(NamedTuple):
    """Mean and spread of the keys of every head before RoPE, channel by channel: (..., num_kv_heads, head_dim) float32.

    A key is mean + spread * x, and x is what is rounded.
    """

    mean: Tensor
    spread: Tensor


class Coded(NamedTuple):
    """Keys before RoPE and values of one layer in codes.

    Attributes:
        keys, values: (batch, num_kv_heads, num_slots, head_dim) int8; may be views into larger buffers.
        key_scales, value_scales: (batch, num_kv_heads, num_slots) float32.
        frame: of the keys, (num_kv_heads, head_dim) each.
    """

    keys: Tensor
    values: Tensor
    key_scales: Tensor
    value_scales: Tensor
    frame: Frame

    def wide_keys(self, dtype: torch.dtype, slots: slice | Tensor = slice(None)) -> Tensor:
        """Keys before RoPE of some slots, (batch, num_kv_heads, n, head_dim)."""
        return decode_keys(self.keys[:, :, slots], self.key_scales[:, :, slots], self.frame, dtype)

    def wide_values(self, dtype: torch.dtype, slots: slice | Tensor = slice(None)) -> Tensor:
        """Values of some slots, (batch, num_kv_heads, n, head_dim)."""
        return dequantize(self.values[:, :, slots], self.value_scales[:, :, slots], dtype)


def encode_keys(keys: Tensor, frame: Frame) -> tuple[Tensor, Tensor]:
    """Keys (..., num_kv_heads, n, head_dim) before RoPE -> codes of that shape, and scales (..., num_kv_heads, n)."""
    return quantize((keys.float() - frame.mean[..., None, :]) / frame.spread[..., None, :])


def decode_keys(codes: Tensor, scales: Tensor, frame: Frame, dtype: torch.dtype) -> Tensor:
    """The inverse of `encode_keys`."""
    wide = codes.float().mul_(scales[..., None]).mul_(frame.spread[..., None, :]).add_(frame.mean[..., None, :])
    return wide.to(dtype)
