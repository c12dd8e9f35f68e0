"""`ondevice doctor`: what it says of machines that this one is not."""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from ondevice.cli import app, examine
from ondevice.cli.examine import Finding, gpu_findings
from ondevice.machine.facts import Graphics
from ondevice.model.loading.recommend import DEVICE_CLASSES

GB = 10**9
BOARD = Graphics(board="NVIDIA Jetson Orin Nano", release="R36.4.3", has_gpu=True)
DESKTOP = Graphics(driver="550.54.15", has_gpu=True)


def of(found: Graphics, *, is_usable: bool) -> dict[str, Finding]:
    return {finding.topic: finding for finding in gpu_findings(found, is_usable=is_usable)}


def reported() -> tuple[dict[str, dict[str, str]], int]:
    done = CliRunner().invoke(app, ["doctor", "--json"])
    assert done.exit_code == 0, done.output
    document: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return {finding["topic"]: finding for finding in document["findings"]}, document["summary"]["failures"]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONDEVICE_CACHE", str(tmp_path))
    monkeypatch.setattr("ondevice.cli.examine.look", Graphics)


# -- the report ----------------------------------------------------------------------------------------


def test_failures_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    found, failures = reported()
    assert failures == 0 == sum(finding["state"] == "failure" for finding in found.values())
    assert {"device", "memory", "disk", "models", "network", "port"} <= found.keys()
    assert "GPU driver" not in found, "where there is no GPU nothing is said of its driver"
    monkeypatch.setattr("ondevice.cli.examine.look", lambda: DESKTOP)
    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.setattr("ondevice.cli.examine.free_memory_bytes", lambda device=None: GB // 10)
    found, failures = reported()
    assert failures == 2
    assert found["GPU driver"]["state"] == found["memory"]["state"] == "failure"
    assert found["GPU driver"]["fix"]


def test_a_port_in_use_is_named_with_another_way(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        taken = examine._port(port)
        assert (taken.state, taken.fix) == ("advice", "ondevice app --port 0")
        assert str(port) in taken.text
        monkeypatch.setattr(examine, "PORT", port)
        assert reported()[0]["port"]["state"] == "advice"
    assert examine._port(port).state == "good"


def test_a_disk_too_small_for_the_model_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    best = examine._best()
    monkeypatch.setattr("shutil.disk_usage", lambda folder: SimpleNamespace(free=best.model.fetch_bytes))
    assert examine._disk(best).state == "failure"
    monkeypatch.setattr("ondevice.cli.examine.stored", lambda row: Path("here"))
    assert examine._disk(best).state == "good", "nothing is to be fetched"


def test_the_disk_is_looked_at_where_the_model_will_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub" / "not there yet"))
    (tmp_path / "hub").mkdir()
    asked = list[Path]()
    monkeypatch.setattr("ondevice.cli.examine.stored", lambda row: None)
    monkeypatch.setattr("shutil.disk_usage", lambda folder: asked.append(folder) or SimpleNamespace(free=0))
    rows = {bool(row.model.sha256): row for row in DEVICE_CLASSES}
    assert "ONDEVICE_CACHE" in examine._disk(rows[True]).fix
    assert "HF_HUB_CACHE" in examine._disk(rows[False]).fix
    assert asked == [tmp_path, tmp_path / "hub"]


def test_a_hub_that_is_switched_off_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "is_offline_mode", lambda: True)
    assert "HF_HUB_OFFLINE" in examine._offline().fix
    monkeypatch.setattr(constants, "is_offline_mode", lambda: False)
    assert examine._offline().state == "good"


# -- GPUs ------------------------------------------------------------------------------------------------


def test_a_gpu_that_torch_cannot_use_is_said_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    assert of(Graphics(), is_usable=False) == {}
    undriven = of(Graphics(has_gpu=True), is_usable=False)["GPU driver"]
    assert undriven.state == "advice"
    assert "driver" in undriven.fix
    monkeypatch.setattr(torch.version, "cuda", None)
    plain = of(DESKTOP, is_usable=False)["GPU driver"]
    assert plain.state == "failure"
    assert "550.54.15" in plain.text
    assert "built without CUDA" in plain.text
    board = of(BOARD, is_usable=False)["GPU driver"]
    assert "R36.4.3" in board.text
    assert "JetPack" in board.fix
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    old = of(DESKTOP, is_usable=False)["GPU driver"]
    assert old.state == "failure"
    assert "CUDA 12.8" in old.text
    assert "update the driver" in old.fix


@pytest.mark.parametrize(
    ("built", "capability", "state"),
    [
        (["sm_80", "sm_86", "sm_90"], (8, 9), "good"),  # machine code of the same generation
        (["sm_80", "sm_90"], (8, 7), "good"),
        (["sm_90"], (8, 9), "failure"),
        (["sm_89"], (8, 6), "failure"),
        (["sm_50", "compute_70"], (8, 9), "good"),  # what is compiled on the machine
        (["sm_90a", "sm_120"], (12, 0), "good"),
        ([], (8, 9), "good"),
        (["gfx90a"], (9, 0), "good"),  # of another maker
    ],
)
def test_torch_has_to_be_built_for_the_gpu(
    built: Sequence[str], capability: tuple[int, int], state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: capability)
    monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: built)
    finding = of(DESKTOP, is_usable=True)["GPU driver"]
    assert finding.state == state
    assert bool(finding.fix) == (state == "failure")


def test_it_says_who_multiplies_weights_of_four_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: (9, 0))
    monkeypatch.setattr(torch.cuda, "get_arch_list", list)
    for lack, state in (("", "good"), ("its results are wrong here", "advice")):
        monkeypatch.setattr("ondevice.cli.examine.lacks_int4", lambda device, lack=lack: lack)
        finding = of(DESKTOP, is_usable=True)["weights in 4 bits"]
        assert finding.state == state
        assert lack in finding.text


def test_triton_needs_a_compiler_and_a_header(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: (9, 0))
    monkeypatch.setattr(torch.cuda, "get_arch_list", list)
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setattr("sysconfig.get_paths", lambda: {"include": str(tmp_path)})
    topic = "Triton's compiler"
    nothing = of(DESKTOP, is_usable=True)[topic]
    assert nothing.state == "missing"
    assert "a C compiler and Python.h" in nothing.text
    (tmp_path / "Python.h").write_text("")
    assert "Python.h" not in of(DESKTOP, is_usable=True)[topic].text
    monkeypatch.setenv("CC", "/opt/cc")
    assert of(DESKTOP, is_usable=True)[topic].state == "good"
