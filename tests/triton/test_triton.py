"""Triton kernels where Triton is installed: in its interpreter everywhere, and on the GPU where there is one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed")

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("interpreted", [True, False], ids=["interpreter", "gpu"])
def test_kernels_equal_their_references(interpreted):
    if not interpreted and not torch.cuda.is_available():
        pytest.skip("there is no CUDA device")
    command = [sys.executable, "-m", "pytest", "-q", "tests/triton/triton_comparison.py"]
    environment = {**os.environ, "TRITON_INTERPRET": str(int(interpreted))}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=590)
    assert done.returncode == 0, done.stdout + done.stderr
