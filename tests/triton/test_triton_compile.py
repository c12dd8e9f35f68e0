"""Every Triton kernel compiles for the NVIDIA GPUs that this project is for; no GPU is needed for that."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

MISSING = "Triton is not installed" if importlib.util.find_spec("triton") is None else None


def _has_assembler() -> bool:
    """Whether this build of Triton brings NVIDIA's assembler, which makes machine code of its PTX."""
    spec = importlib.util.find_spec("triton")
    assert spec is not None
    assert spec.origin is not None
    return (Path(spec.origin).parent / "backends/nvidia/bin/ptxas").is_file()


@pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
@pytest.mark.timeout(600)
def test_kernels_compile(tmp_path):
    if not _has_assembler():
        pytest.skip("this build of Triton has no assembler for NVIDIA GPUs")
    # A folder of its own, so that nothing that was compiled before is taken for compiled now.
    environment = {**os.environ, "TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-m", "pytest", "-q", "tests/triton/triton_compilation.py"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=590)
    assert done.returncode == 0, done.stdout + done.stderr
