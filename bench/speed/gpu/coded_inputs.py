"""Inputs of attention over quantised keys and values, and its outputs, for comparisons."""

from __future__ import annotations

import torch
from ondevice.kernels.codes import Coded, Frame, around, encode
from ondevice.kernels.rope import signed_sine
from torch import Tensor

from ondevice_bench.speed.references import coded_attention_ref

# batch, num_heads, num_kv_heads, num_slots, capacity, head_dim, rotary_dim
SHAPES = [(1, 2, 2, 1, 8, 64, 64), (2, 9, 3, 137, 160, 64, 64), (1, 14, 2, 71, 71, 80, 80), (1, 3, 1, 40, 64, 80, 32)]
BITS = ((8, 8), (8, 4), (4, 4))  # of keys, of values
_POSITIONS = 500


def coded_inputs(
    shape: tuple[int, int, int, int, int],
    dtype: torch.dtype = torch.float32,
    *,
    bits: tuple[int, int] = BITS[0],
    rotary_dim: int | None = None,
    is_shared: bool = False,
) -> tuple[Tensor, Coded, Tensor, Tensor, Tensor]:
    """Query, codes, positions, cosine and signed sine, as `coded_attention` takes them, on the CPU.

    Args:
        shape: batch, num_heads, num_kv_heads, num_slots, head_dim.
        dtype: of the query and of the tables.
        bits: of keys, of values.
        rotary_dim: the part of a key that turns; None is all of it.
        is_shared: whether every head has the same positions.
    """
    batch, num_heads, num_kv_heads, num_slots, head_dim = shape
    rotary_dim = rotary_dim or head_dim
    generator = torch.Generator().manual_seed(sum(shape))
    query = torch.randn(batch, num_heads, 1, head_dim, generator=generator).to(dtype)
    keys, values = torch.randn(2, batch, num_kv_heads, num_slots, head_dim, generator=generator)
    mean = 5 * torch.randn(num_kv_heads, head_dim, generator=generator)
    frame = Frame(mean, torch.rand(num_kv_heads, head_dim, generator=generator) + 0.1)
    keys = mean[:, None] + frame.spread[:, None] * keys
    (keys, key_scales), (values, value_scales) = encode(around(keys, frame), bits[0]), encode(values, bits[1])
    heads = (1, 1) if is_shared else (batch, num_kv_heads)
    positions = torch.randint(0, _POSITIONS, (*heads, num_slots), generator=generator, dtype=torch.int32)
    angle = torch.arange(_POSITIONS)[:, None] * 100.0 ** -(torch.arange(rotary_dim // 2) / rotary_dim)
    cos, sin = torch.cat((angle.cos(),) * 2, -1), signed_sine(torch.cat((angle.sin(),) * 2, -1))
    return query, Coded(keys, values, key_scales, value_scales, frame), positions, cos.to(dtype), sin.to(dtype)


def coded_outputs(
    shape: tuple[int, ...], bits: tuple[int, int], dtype: torch.dtype, device: torch.device, num_splits: int = 1
) -> tuple[Tensor, Tensor]:
    """Outputs of the Triton kernel for larger buffers, of which the first slots are used, and of its reference."""
    from ondevice.kernels.triton.coded_attention import widen_and_attend

    batch, num_heads, num_kv_heads, num_slots, capacity, head_dim, rotary_dim = shape
    size = (batch, num_heads, num_kv_heads, capacity, head_dim)
    query, coded, positions, cos, sin = coded_inputs(size, dtype, bits=bits, rotary_dim=rotary_dim)
    frame = Frame(*(part.to(device) for part in coded.frame))
    whole = [part.to(device) for part in coded[:4]]
    some = [part[:, :, :num_slots] for part in whole]
    query, positions, cos, sin = (part.to(device) for part in (query, positions, cos, sin))
    used = torch.tensor([num_slots], dtype=torch.int32, device=device)
    held = Coded(*whole, frame)  # type: ignore[arg-type]
    scale = head_dim**-0.5
    out = widen_and_attend(query, held, positions, cos, sin, used, scale=scale, num_splits=num_splits)
    expected = Coded(*some, frame)  # type: ignore[arg-type]
    return out, coded_attention_ref(query, expected, positions[..., :num_slots], cos, sin, scale=scale)[0]
