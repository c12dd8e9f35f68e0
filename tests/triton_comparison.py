"""Triton kernels against their references, on the device named by TRITON_INTERPRET: interpreter or GPU.

Not collected by itself: Triton reads that variable once per process, so `test_kernels_triton` starts this file.
"""

import os

import pytest
import torch
from ondevice.kernels import paged_attention
from ondevice.kernels.paged_attention import paged_attention_ref

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
