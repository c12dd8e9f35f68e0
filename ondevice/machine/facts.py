"""The machine and the software that a figure comes from."""

from __future__ import annotations

import os
import platform
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
        "device": _device_name(device),
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


def _device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return _cpu_name()


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named and named[0] else platform.machine()
