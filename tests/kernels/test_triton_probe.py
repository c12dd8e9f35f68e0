"""Where Triton cannot compile, torch's kernels compute instead, and one line says so."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from ondevice.kernels import backend
from ondevice.kernels.triton import probe

GPU = torch.device("cuda", 0)


@pytest.fixture(autouse=True)
def asked_anew() -> Iterator[None]:
    probe.works.cache_clear()
    yield
    probe.works.cache_clear()


@pytest.fixture
def on_gpu(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """What a rule looks at of a tensor on a GPU, with Triton installed."""
    monkeypatch.delenv("KERNELS_IMPL", raising=False)
    monkeypatch.setattr(backend, "_has", lambda package: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    return SimpleNamespace(is_cuda=True, device=GPU, dtype=torch.float32)


def failing(monkeypatch: pytest.MonkeyPatch, error: Exception) -> list[torch.device]:
    asked: list[torch.device] = []

    def launch(device: torch.device) -> None:
        asked.append(device)
        raise error

    monkeypatch.setattr(probe, "_launch", launch)
    return asked


def test_it_is_asked_once_and_said_once(
    on_gpu: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = failing(monkeypatch, RuntimeError("Failed to find C compiler. Please specify via CC"))
    monkeypatch.setattr(probe, "lacking", list)
    assert not any(backend.uses_triton(on_gpu) for _ in range(3))  # type: ignore[arg-type]
    assert asked == [GPU]
    (line,) = capsys.readouterr().err.splitlines()
    assert "torch's kernels compute instead" in line
    assert "Failed to find C compiler" in line


def test_triton_is_taken_where_it_works(on_gpu: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "_launch", lambda device: None)
    assert backend.uses_triton(on_gpu)  # type: ignore[arg-type]


def test_nothing_is_tried_while_a_graph_is_recorded(on_gpu: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = failing(monkeypatch, RuntimeError("operation not permitted when stream is capturing"))
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    assert backend.uses_triton(on_gpu)  # type: ignore[arg-type]
    assert not asked


def test_who_asks_for_triton_gets_its_own_error(on_gpu: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = failing(monkeypatch, RuntimeError("no compiler"))
    monkeypatch.setenv("KERNELS_IMPL", "triton")
    assert backend.uses_triton(on_gpu)  # type: ignore[arg-type]
    assert not asked


def test_what_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setattr("sysconfig.get_paths", lambda: {"include": str(tmp_path)})
    assert probe.reason(RuntimeError("x")).startswith("a C compiler and Python.h missing")
    (tmp_path / "Python.h").touch()
    assert probe.reason(RuntimeError("x")).startswith("a C compiler missing")
    monkeypatch.setenv("CC", "/opt/cc")
    assert probe.reason(OSError("first line\nsecond line")) == "OSError: first line"
    assert probe.reason(KeyError()) == "KeyError"


def test_a_kernel_runs_in_the_interpreter_and_a_missing_driver_is_said() -> None:
    pytest.importorskip("triton", reason="Triton is not installed here")
    code = "import torch; from ondevice.kernels.triton import probe; print(probe.works(torch.device('cpu')))"

    def run(interpret: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "TRITON_INTERPRET": interpret}
        return subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env=environment
        )

    done = run("1")
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr
    compiled = run("0")  # nothing is compiled for a CPU, as nothing is where the driver is missing
    assert (compiled.returncode, compiled.stdout) == (0, "False\n"), compiled.stderr
    assert len(compiled.stderr.splitlines()) == 1
