"""Triton kernels against their references, on the device named by TRITON_INTERPRET: interpreter or GPU.

Not collected by itself: Triton reads that variable once per process, so `test_kernels_triton` starts this file.
"""

import os

import pytest
import torch

from ondevice.bench.kernel_cases import kernel_cases

DEVICE = torch.device("cpu" if os.environ.get("TRITON_INTERPRET") == "1" else "cuda")


@pytest.mark.parametrize("case", kernel_cases(), ids=str)
def test_kernel_equals_reference(case):
    assert case.error(DEVICE) <= case.tolerance
