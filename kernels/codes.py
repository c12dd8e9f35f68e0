"""Keys and values in 8 or 4 bits, or keys in 8 and values in 4: how they are rounded, and what belongs together.

A key lies before RoPE, measured from what is usual for its head: channel by channel a mean and a spread, the frame.
Without it a few channels that are always large take up all steps, and the errors of the scores are ten times as large.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from ondevice.kernels.quantize import dequantize, dequantize_four, quantize, quantize_four
from torch import Tensor


class Frame(NamedTuple):
    """Mean and spread of the keys of every head before RoPE, channel by channel: (..., kv_heads, dim) float32.

    A key is mean + spread * x, and x is what is rounded.
    """

    mean: Tensor
    spread: Tensor


class Coded(NamedTuple):
    """Keys before RoPE and values of one layer, quantised.

    Attributes:
        keys, values: (batch, kv_heads, num_slots, dim) int8, or as `quantize_four` has them: values may be so
            alone; may be views into larger buffers.
        key_scales, value_scales: (batch, kv_heads, num_slots) float32, or (..., 2 * groups) float16.
        frame: of the keys, (kv_heads, dim) each.
    """

    keys: Tensor
    values: Tensor
    key_scales: Tensor
    value_scales: Tensor
    frame: Frame

    def wide_keys(self, dtype: torch.dtype, slots: slice | Tensor = slice(None)) -> Tensor:
        """Keys before RoPE of some slots, (batch, kv_heads, n, dim)."""
        return decode_keys(self.keys[:, :, slots], self.key_scales[:, :, slots], self.frame, dtype)

    def wide_values(self, dtype: torch.dtype, slots: slice | Tensor = slice(None)) -> Tensor:
        """Values of some slots, (batch, kv_heads, n, dim)."""
        return decode(self.values[:, :, slots], self.value_scales[:, :, slots], dtype)


def encode(x: Tensor, bits: int = 8) -> tuple[Tensor, Tensor]:
    """Vectors (..., dim) -> codes and scales of `quantize` or `quantize_four`."""
    return quantize(x) if bits == 8 else quantize_four(x)


def decode(codes: Tensor, scales: Tensor, dtype: torch.dtype) -> Tensor:
    """The inverse, (..., dim) of `dtype`."""
    return (dequantize if codes.dtype == torch.int8 else dequantize_four)(codes, scales, dtype)


def around(keys: Tensor, frame: Frame) -> Tensor:
    """Keys (..., kv_heads, n, dim) before RoPE -> what is encoded of them, float32."""
    return (keys.float() - frame.mean[..., None, :]) / frame.spread[..., None, :]


def decode_keys(codes: Tensor, scales: Tensor, frame: Frame, dtype: torch.dtype) -> Tensor:
    """The inverse of `encode` and `around`."""
    wide = decode(codes, scales, torch.float32)
    return wide.mul_(frame.spread[..., None, :]).add_(frame.mean[..., None, :]).to(dtype)
