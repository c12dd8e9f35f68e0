"""`make gpu-check` on a machine without a GPU: it runs from a bare checkout, and says what is missing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from ondevice.config import EngineConfig, PotConfig
from ondevice_bench.results.files import read_result
from ondevice_bench.results.result import new_result
from ondevice_bench.speed.gpu import check as gpu_check
from ondevice_bench.speed.gpu.kernel_cases import kernel_cases
from ondevice_bench.speed.gpu.real_model import measure_model
from ondevice_bench.speed.gpu.run import Run
from tests.builders.gguf_files import write_gguf

ROOT = Path(__file__).resolve().parents[3]


def test_without_a_gpu_it_says_what_is_missing(tmp_path):
    pytest.importorskip("triton", reason="Triton is not installed")
    out = tmp_path / "gpu.json"
    # From another folder and by path, as where nothing is installed.
    command = [sys.executable, str(ROOT / "scripts/from-checkout"), "ondevice_bench.speed.gpu.check", "--out", str(out)]
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


def test_a_model_that_is_not_there_is_refused(tmp_path, capsys):
    with pytest.raises(SystemExit):
        gpu_check.main(["--model", str(tmp_path / "none.gguf")])
    assert "none.gguf" in capsys.readouterr().err


def test_a_real_model_is_compared_and_timed(tmp_path):
    result = new_result("make gpu-bench", EngineConfig(), torch.device("cpu"))
    run = Run(torch.device("cpu"), result, tmp_path / "gpu.json", seconds=60)
    pot = PotConfig(capacity=512, num_kept=192, reserve=256)
    measure_model(run, write_gguf(tmp_path / "tiny.gguf"), num_compared=64, num_paragraphs=3, pot=pot)
    by_metric = {(one.contender, one.metric) for one in run.rows}
    assert by_metric >= {("float32 on the CPU", "loss"), ("device", "loss"), ("pot", "reading speed")}
    assert abs(run.summary["model_loss_difference"]) < 0.2  # stored weights, activations rounded to bytes
    assert run.summary["model_reading_speed"] > 0
    assert read_result(tmp_path / "gpu.json").rows
