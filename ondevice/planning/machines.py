"""Machines that a plan can be made for: a row each, and the one that stands before us. A row is memory, no settings:
what fits into it follows from the plan."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf

import torch

from ondevice.config import DeviceName
from ondevice.errors import ConfigError
from ondevice.machine.memory import free_memory_bytes, shares_memory, total_memory_bytes
from ondevice.machine.process import resident_bytes
from ondevice.model.loading.placement import cpu_speed
from ondevice.model.loading.recommend import Recommendation, recommend
from ondevice.model.loading.stored import choices

_GB = 10**9
_FOUND = 0.8  # of the memory on the box: what a system reports is less


@dataclass(frozen=True, slots=True)
class Machine:
    """Memory of a machine.

    Attributes:
        name: what `--machine` takes; "this machine" for the one at hand.
        label: what it is.
        device: where it computes, "cpu" or "cuda".
        total_bytes: main memory.
        free_bytes: of that, for a process that is about to start.
        device_total_bytes, device_free_bytes: of the GPU, the same where `is_shared`; 0 without one.
        is_shared: whether the GPU computes in the main memory.
    """

    name: str
    label: str
    device: str
    total_bytes: int
    free_bytes: int
    device_total_bytes: int = 0
    device_free_bytes: int = 0
    is_shared: bool = True

    @property
    def is_here(self) -> bool:
        """True if it is the machine at hand."""
        return self.name not in MACHINES

    def computing_on(self, device: DeviceName) -> Machine:
        """The machine with its CPU or its GPU chosen; `auto` leaves it as it is.

        Raises:
            ConfigError: there is no GPU.
        """
        if device == "cuda" and self.device != "cuda":
            raise ConfigError(f"{self.label} computes on its CPU", fix="Leave out {engine.device}, or choose another.")
        if device != "cpu" or self.device == "cpu":
            return self
        return replace(self, device="cpu", device_total_bytes=0, device_free_bytes=0, is_shared=True)

    def best_model(self) -> Recommendation:
        """The model of the catalogue that `auto` tries first."""
        speed = cpu_speed() if self.is_here else inf
        suited = recommend(self.total_bytes, self.device == "cuda", self.device_total_bytes, speed)
        return choices(suited)[0] if self.is_here else next(suited)


def _row(name: str, label: str, main: float, gpu: float = 0.0, *, is_shared: bool = False) -> Machine:
    """A machine with nothing else in its memory; sizes in GB, as its system reports them."""
    total, device_total = int(main * _GB), int(gpu * _GB)
    kind = "cuda" if gpu else "cpu"
    return Machine(name, label, kind, total, total, device_total, device_total, is_shared or not gpu)


# Boards report less than stands on the box. Main memory beside a GPU is the least that such machines come with.
MACHINES = {
    row.name: row
    for row in (
        _row("laptop", "a laptop with 16 GB and no GPU", 15.5),
        _row("rtx4090", "a desktop with an RTX 4090 (24 GB) and 32 GB", 31.0, 25.3),
        _row("gpu", "a server with a GPU of 80 GB and 128 GB", 124.0, 80.0),
        _row("orin-64gb", "a Jetson AGX Orin with 64 GB for CPU and GPU", 61.0, 61.0, is_shared=True),
        _row("orin-nano-8gb", "a Jetson Orin Nano with 8 GB for CPU and GPU", 7.4, 7.4, is_shared=True),
    )
}


def this_machine(device: torch.device) -> Machine:
    """The machine at hand; what this process has itself counts as free, for the one that will be planned."""
    total, own = total_memory_bytes(), resident_bytes()
    if device.type != "cuda":
        return Machine("this machine", _nearest("cpu", total, 0, True), "cpu", total, free_memory_bytes() + own)
    is_shared, gpu_total = shares_memory(device), torch.cuda.get_device_properties(device).total_memory
    free, gpu_free = free_memory_bytes() + own, free_memory_bytes(device) + (own if is_shared else 0)
    label = _nearest("cuda", total, gpu_total, is_shared)
    return Machine("this machine", label, "cuda", total, free, gpu_total, gpu_free, is_shared)


def _nearest(device: str, total: int, gpu_total: int, is_shared: bool) -> str:
    """The name of the largest machine of its kind whose memory is there; "" where none is."""
    fitting = [
        row
        for row in MACHINES.values()
        if (row.device, row.is_shared) == (device, is_shared)
        and total >= _FOUND * row.total_bytes
        and gpu_total >= _FOUND * row.device_total_bytes
    ]
    return max(fitting, key=lambda row: row.device_total_bytes or row.total_bytes).name if fitting else ""
