"""What is free: the smaller of what the machine has and what a container may have of it."""

from __future__ import annotations

import resource
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import torch

from ondevice.machine import memory
from ondevice.machine.memory import (
    _cgroup_free_bytes,
    _cgroup_limits,
    free_memory_bytes,
    shares_memory,
    total_memory_bytes,
)

V2 = ("memory.max", "memory.current", "inactive_file")
V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def _group(folder: Path, names: tuple[str, str, str], limit: object, usage: int, cache: int = 0) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / names[0]).write_text(f"{limit}\n")
    (folder / names[1]).write_text(f"{usage}\n")
    (folder / "memory.stat").write_text(f"anon 1\n{names[2]} {cache}\n")


def _process(root: Path, text: str) -> None:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(text)


def test_a_container_of_the_second_version_is_limited(tmp_path: Path) -> None:
    _process(tmp_path, "0::/app/worker\n")
    top = tmp_path / "sys/fs/cgroup"
    assert _cgroup_free_bytes(tmp_path) is None
    _group(top / "app/worker", V2, "max", 500)
    assert _cgroup_free_bytes(tmp_path) is None
    _group(top / "app", V2, 10_000, 4000, cache=1500)
    assert _cgroup_free_bytes(tmp_path) == 7500, "the group around it counts, and its file cache is free"
    _group(top / "app/worker", V2, 3000, 2900)
    assert _cgroup_free_bytes(tmp_path) == 100
    _group(top / "app/worker", V2, 3000, 3100)
    assert _cgroup_free_bytes(tmp_path) == 0


def test_a_container_of_the_first_version_is_limited(tmp_path: Path) -> None:
    _process(tmp_path, "5:cpu,cpuacct:/x\n4:memory:/of/the/host\n0::/\n")
    _group(tmp_path / "sys/fs/cgroup/memory", V1, 9_223_372_036_854_771_712, 10)
    assert _cgroup_free_bytes(tmp_path) is None, "the largest number is no limit"
    _group(tmp_path / "sys/fs/cgroup/memory", V1, 2000, 500)
    assert _cgroup_free_bytes(tmp_path) == 1500, "inside a container its own group lies at the top"


def test_the_total_is_what_a_container_may_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _process(tmp_path, "4:memory:/of/the/host\n0::/app/worker\n")
    top = tmp_path / "sys/fs/cgroup"
    assert _cgroup_limits(tmp_path) == []
    _group(top / "memory", V1, 9_223_372_036_854_771_712, 10)
    _group(top / "app/worker", V2, "max", 500)
    assert _cgroup_limits(tmp_path) == []
    _group(top / "app", V2, 4000, 900)
    _group(top / "memory", V1, 3000, 10)
    assert sorted(_cgroup_limits(tmp_path)) == [3000, 4000]
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(total=5000))
    for limits, expected in (([], 5000), ([7000], 5000), ([4000, 3000], 3000)):
        monkeypatch.setattr(memory, "_cgroup_limits", lambda limits=limits: limits)
        assert total_memory_bytes() == expected


def test_the_smaller_figure_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=5000))
    for limited, expected in ((None, 5000), (7000, 5000), (300, 300)):
        monkeypatch.setattr(memory, "_cgroup_free_bytes", lambda limited=limited: limited)
        assert free_memory_bytes() == free_memory_bytes(torch.device("cpu")) == expected


def test_a_limit_on_addresses_counts() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    try:
        resource.setrlimit(resource.RLIMIT_AS, (psutil.Process().memory_info().vms + 200_000_000, hard))
        limited = free_memory_bytes()
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    assert 0 < limited <= 200_000_000
    assert free_memory_bytes() > limited


def test_a_board_with_one_memory_shares_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shares_memory(torch.device("cpu"))
    for is_integrated in (True, False):
        board = SimpleNamespace(is_integrated=is_integrated)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device=None, board=board: board)
        assert shares_memory(torch.device("cuda")) == is_integrated
