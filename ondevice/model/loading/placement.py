"""Placement of a model: device, dtype, and whether the weights fit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import torch

from ondevice.config import DeviceName, DtypeName
from ondevice.errors import ModelError
from ondevice.machine.memory import free_memory_bytes, total_memory_bytes
from ondevice.model.families import FAMILIES
from ondevice.model.loading.recommend import Recommendation, recommend

WeightForm = Literal["none", "8bit", "4bit", "stored"]  # `stored`: as a GGUF file has them

# Weights times tokens that a core reads in a second, over 8,192 tokens. AVX2: docs/results/bench-peers.md,
# peers_1_5b_avx2. AVX512: an earlier peers_1_5b; that of today is twice as fast. Else: an earlier peers_0_5b, on AVX2.
_CORE_SPEED, _PLAIN_CORE_SPEED = {"AVX512": 86e9, "AVX2": 48e9}, 34e9
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def choose_device(name: DeviceName) -> torch.device:
    """The device asked for; `auto` takes CUDA when there is one.

    Raises:
        ModelError: CUDA is asked for and not there.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name == "cuda" and not torch.cuda.is_available():
        raise ModelError(
            "torch sees no CUDA device on this machine",
            fix="Install a torch build for your GPU and driver, or use {engine.device} cpu.",
        )
    return torch.device(name)


def choose_dtype(name: DtypeName, device: torch.device, family: str) -> torch.dtype:
    """The dtype asked for; `auto` takes what computes fastest on the device.

    Args:
        family: of `FAMILIES`.
    """
    if name != "auto":
        return _DTYPES[name]
    if device.type == "cpu":  # without AMX a CPU takes three times as long in bfloat16
        return torch.float32
    if torch.cuda.get_device_capability(device) >= (8, 0):
        return torch.bfloat16
    overflows = family in FAMILIES and FAMILIES[family].overflows_float16
    return torch.float32 if overflows else torch.float16


def require_memory(weight_bytes: int, device: torch.device, quantization: WeightForm) -> None:
    """Refuse weights that do not fit, before the machine starts to swap.

    Raises:
        ModelError: with what would fit.
    """
    free_bytes = free_memory_bytes(device)
    if weight_bytes <= free_bytes:
        return
    fitting = next((row for row in recommendations_for(device) if row.weight_bytes <= free_bytes), None)
    advice = "close other programs, or give this container more"
    if fitting is not None:
        advice = f"choose a smaller model: `{fitting.command}` fits"
    if quantization not in ("4bit", "stored"):
        advice = f"add {{engine.quantization}} 4bit, or {advice}"
    raise ModelError(
        f"The weights take {weight_bytes / 1e9:.1f} GB, and {free_bytes / 1e9:.1f} GB are free on {device.type}",
        fix=f"{advice[0].upper()}{advice[1:]}.",
    )


def recommendations_for(device: torch.device) -> Iterator[Recommendation]:
    """The advice of `recommend` for this machine."""
    has_cuda = device.type == "cuda"
    cuda_bytes = torch.cuda.get_device_properties(device).total_memory if has_cuda else 0
    return recommend(total_memory_bytes(), has_cuda, cuda_bytes, cpu_speed())


def cpu_speed() -> float:
    """Weights times tokens that this CPU reads in a second, as far as that can be told without a trial."""
    kind = torch.backends.cpu.get_cpu_capability()
    return torch.get_num_threads() * _CORE_SPEED.get(kind, _PLAIN_CORE_SPEED)
