"""Triton kernels against their references, on the device named by TRITON_INTERPRET: interpreter or GPU.

Not collected by itself: Triton reads that variable once per process, so `test_kernels_triton` starts this file.
"""

import os

import pytest
import torch
from ondevice.kernels import paged_attention, rope_attention
from ondevice.kernels.paged_attention import paged_attention_ref
from ondevice.kernels.rope import signed_sine
from ondevice.kernels.rope_attention import rope_attention_ref

from tests.paged_inputs import paged_inputs

DEVICE = "cpu" if os.environ.get("TRITON_INTERPRET") == "1" else "cuda"
# lengths, (num_heads, num_kv_heads), head_dim, block_size
CASES = [
    ([1, 137], (2, 2), 64, 16),
    ([33, 0, 16], (9, 3), 64, 8),  # a sequence without slots; several tiles
    ([71], (8, 2), 80, 16),
    ([5, 64], (3, 1), 80, 8),
]


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 3e-2)])
@pytest.mark.parametrize("case", CASES)
def test_paged_attention_equals_reference(case, dtype, tolerance, monkeypatch):
    monkeypatch.setenv("KERNELS_IMPL", "triton")
    inputs = paged_inputs(*case, dtype)
    out = paged_attention(*(t.to(DEVICE) for t in inputs), scale=case[2] ** -0.5)
    assert out.dtype == dtype
    query, keys, values, tables, lengths = inputs
    expected = paged_attention_ref(query.float(), keys.float(), values.float(), tables, lengths, scale=case[2] ** -0.5)
    assert torch.allclose(out.cpu().float(), expected, atol=tolerance, rtol=tolerance)


# batch, num_heads, num_kv_heads, num_slots, capacity, head_dim, rotary_dim
ROPE_CASES = [
    (1, 2, 2, 1, 8, 64, 64),
    (2, 9, 3, 137, 160, 64, 64),
    (1, 8, 2, 71, 71, 80, 80),
    (1, 3, 1, 40, 64, 80, 32),
]


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 3e-2)])
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("case", ROPE_CASES)
def test_rope_attention_equals_reference(case, shared, dtype, tolerance, monkeypatch):
    monkeypatch.setenv("KERNELS_IMPL", "triton")
    batch, num_heads, num_kv_heads, num_slots, capacity, head_dim, rotary_dim = case
    generator = torch.Generator().manual_seed(sum(case))
    query = torch.randn(batch, num_heads, 1, head_dim, generator=generator).to(dtype)
    keys, values = torch.randn(2, batch, num_kv_heads, capacity, head_dim, generator=generator).to(dtype)
    angle = torch.arange(500)[:, None] * 100.0 ** -(torch.arange(rotary_dim // 2) / rotary_dim)
    cos, sin = torch.cat((angle.cos(),) * 2, -1).to(dtype), signed_sine(torch.cat((angle.sin(),) * 2, -1)).to(dtype)
    rows = (1, 1) if shared else (batch, num_kv_heads)
    positions = torch.randint(0, 500, (*rows, num_slots), generator=generator, dtype=torch.int32)
    keys, values = keys.to(DEVICE)[:, :, :num_slots], values.to(DEVICE)[:, :, :num_slots]
    inputs = query.to(DEVICE), keys, values, positions.to(DEVICE), cos.to(DEVICE), sin.to(DEVICE)
    out = rope_attention(*inputs, scale=head_dim**-0.5)
    expected = rope_attention_ref(*inputs, scale=head_dim**-0.5)
    assert out.dtype == dtype
    assert torch.allclose(out.float(), expected.float(), atol=tolerance, rtol=tolerance)
