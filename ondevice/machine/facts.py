"""The machine and the software that a figure comes from; and NVIDIA's GPUs as the system shows them, without torch, so
that one which torch cannot use is not overlooked.
"""

from __future__ import annotations

import os
import platform
import re
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil
import torch

_PACKAGES = ("ondevice", "torch", "transformers", "tokenizers", "numpy")


def describe_machine(device: torch.device) -> dict[str, Any]:
    """Device, the CPU's vector instructions, cores this process may use, threads torch uses, memory; nothing that names
    the machine or its user."""
    machine = {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else _cpu_name(),
        "vectors": torch.backends.cpu.get_cpu_capability(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "threads": torch.get_num_threads(),
        "memory_bytes": psutil.virtual_memory().total,
    }
    if device.type == "cuda":
        machine["device_memory_bytes"] = torch.cuda.get_device_properties(device).total_memory
    return machine


def installed_version(package: str) -> str | None:
    """The installed version of a package, None when it is not there."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that decide what is computed."""
    found = {name: installed_version(name) for name in _PACKAGES}
    return {"python": platform.python_version(), **{name: number for name, number in found.items() if number}}


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named and named[0] else platform.machine()


_VENDOR, _DISPLAY = "0x10de", "0x03"  # of PCI: NVIDIA, and display controllers


@dataclass(frozen=True, slots=True)
class Graphics:
    """The graphics devices of this machine.

    Attributes:
        board: name of a Jetson board, "" elsewhere.
        release: of Jetson's Linux, such as "R36.4.3"; "" elsewhere. Each JetPack has one.
        driver: version of the driver that runs, "" without one.
        has_gpu: whether there is a GPU at all.
    """

    board: str = ""
    release: str = ""
    driver: str = ""
    has_gpu: bool = False


def look(root: Path = Path("/")) -> Graphics:
    """Look at the system.

    Args:
        root: where `proc`, `sys`, `dev` and `etc` are.
    """
    board = _text(root / "proc/device-tree/model").strip("\0 \n")
    if "jetson" not in board.lower():
        board = ""
    driver = re.search(r"Module\S*(?: for \S+)?\s+(\d+[.\d]+)", _text(root / "proc/driver/nvidia/version"))
    tegra = re.search(r"(R\d+) \(release\), REVISION: ([\d.]+)", _text(root / "etc/nv_tegra_release"))
    return Graphics(
        board=board,
        release=f"{tegra[1]}.{tegra[2]}" if tegra else "",
        driver=driver[1] if driver else "",
        has_gpu=bool(board) or any(root.glob("dev/nvidia[0-9]*")) or _is_on_bus(root),
    )


def _is_on_bus(root: Path) -> bool:
    devices = (root / "sys/bus/pci/devices").glob("*")
    return any(
        _text(one / "vendor").strip() == _VENDOR and _text(one / "class").startswith(_DISPLAY) for one in devices
    )


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
