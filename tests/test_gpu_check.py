"""`make gpu-check` on a machine without a GPU: it runs from a bare checkout, and says what is missing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ondevice.bench import gpu_check
from ondevice.bench.kernel_cases import kernel_cases

ROOT = Path(__file__).resolve().parents[1]


def test_without_a_gpu_it_says_what_is_missing(tmp_path):
    pytest.importorskip("triton", reason="Triton is not installed")
    out = tmp_path / "gpu.json"
    # From another folder and by path, as where nothing is installed.
    command = [sys.executable, str(ROOT / "scripts/from-checkout"), "ondevice.bench.gpu_check", "--out", str(out)]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "sees no NVIDIA GPU" in done.stderr
    assert not out.exists()


def test_without_triton_it_says_so(monkeypatch, capsys):
    monkeypatch.setattr(gpu_check.importlib.util, "find_spec", lambda name: None)
    assert gpu_check.main([]) == 2
    assert "Triton is not installed" in capsys.readouterr().err


def test_an_unknown_part_is_refused(capsys):
    with pytest.raises(SystemExit):
        gpu_check.main(["--parts", "kernels,weather"])
    assert "weather" in capsys.readouterr().err


def test_every_case_has_a_name_of_its_own():
    names = [str(case) for case in kernel_cases()]
    assert len(names) == len(set(names))
