"""Inputs of attention over keys and values in codes, and what comes of them, for comparisons."""

from __future__ import annotations

import torch
from torch import Tensor

from ondevice.kernels.backend import choosing
from ondevice.kernels.coded_attention import coded_attention, coded_attention_ref
from ondevice.kernels.codes import Coded, Frame, encode, encode_keys
from ondevice.kernels.rope import signed_sine

# batch, num_heads, num_kv_heads, num_slots, capacity, head_dim, rotary_dim
SHAPES = [(1, 2, 2, 1, 8, 64, 64), (2, 9, 3, 137, 160, 64, 64), (1, 14, 2, 71, 71, 80, 80), (1, 3, 1, 40, 64, 80, 32)]
BITS = ((8, 8), (8, 4), (4, 4))  # of keys, of values


def coded_outputs(
    shape: tuple[int, ...], bits: tuple[int, int], dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, Tensor]:
    """What the Triton kernel gives for views into larger buffers, and what the reference does."""
    batch, num_heads, num_kv_heads, num_slots, capacity, head_dim, rotary_dim = shape
    generator = torch.Generator().manual_seed(sum(shape))
    query = torch.randn(batch, num_heads, 1, head_dim, generator=generator).to(device, dtype)
    keys, values = torch.randn(2, batch, num_kv_heads, capacity, head_dim, generator=generator)
    mean = 5 * torch.randn(num_kv_heads, head_dim, generator=generator)
    frame = Frame(mean, torch.rand(num_kv_heads, head_dim, generator=generator) + 0.1)
    (key_codes, key_scales), (value_codes, value_scales) = (
        encode_keys(keys + mean[:, None], frame, bits[0]),
        encode(values, bits[1]),
    )
    parts = [part.to(device)[:, :, :num_slots] for part in (key_codes, value_codes, key_scales, value_scales)]
    coded = Coded(parts[0], parts[1], parts[2], parts[3], Frame(*(part.to(device) for part in frame)))
    angle = torch.arange(500)[:, None] * 100.0 ** -(torch.arange(rotary_dim // 2) / rotary_dim)
    cos, sin = torch.cat((angle.cos(),) * 2, -1), signed_sine(torch.cat((angle.sin(),) * 2, -1))
    positions = torch.randint(0, 500, (batch, num_kv_heads, num_slots), generator=generator, dtype=torch.int32)
    args = query, coded, positions.to(device), cos.to(device, dtype), sin.to(device, dtype)
    with choosing("KERNELS_IMPL", "triton"):
        out, _ = coded_attention(*args, scale=head_dim**-0.5)
    return out, coded_attention_ref(*args, scale=head_dim**-0.5)[0]
