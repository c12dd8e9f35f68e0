"""A table of catalogue models and the machines that they suit, and its rows that fit, the best first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from typing import Literal

from ondevice.model.loading.catalogue import CATALOGUE, SMOLLM2, CatalogueModel, WheelSlices


@dataclass(frozen=True, slots=True)
class Recommendation:
    """One row of the table: machines with at least `min_memory_bytes`, and the model to try on them.

    Thresholds lie below the number on the box: a board of 8 GB reports 7.4.
    """

    label: str
    has_cuda: bool
    min_memory_bytes: int
    model: CatalogueModel
    quantization: Literal["none", "4bit"] = "none"

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weights in memory."""
        if self.model.file:  # its weights stay as they are stored
            return self.model.num_bytes
        if self.quantization == "4bit":
            return self.model.four_bit_bytes
        return self.model.weight_bytes(2 if self.has_cuda else 4)

    @property
    def why(self) -> str:
        """One sentence without a full stop."""
        if self.model.sha256:
            form = "as stored"
        elif self.quantization == "4bit":
            form = "in 4 bits"
        else:
            form = "in bfloat16" if self.has_cuda else "in float32"
        return f"its weights take {self.weight_bytes / 1e9:.1f} GB {form}, which suits {self.label}"

    @property
    def needs_hub(self) -> bool:
        """True if nothing but the hub has the model."""
        return not any(isinstance(source, WheelSlices) for source in self.model.sources)

    @property
    def command(self) -> str:
        """The one command that starts the app with it."""
        option = "" if self.quantization == "none" else f" --quantization {self.quantization}"
        return f"ondevice app --model {self.model.name}{option}"


_FEWEST_TOKENS = 100.0  # a second, that a machine has to read with a model that only the hub has
# Best first. On a CPU time is the limit before memory is, hence smaller models there: general ones, and those that are
# had without the hub. Never a model whose licence has to be accepted on the hub first, or is not Apache's.
DEVICE_CLASSES = (
    Recommendation("a GPU with 40 GB or more (Jetson AGX Orin 64 GB)", True, 38 * 10**9, CATALOGUE["qwen3-14b"]),
    Recommendation("a GPU with 24 GB (RTX 4090, Jetson AGX Orin 32 GB)", True, 22 * 10**9, CATALOGUE["qwen3-8b"]),
    Recommendation("a GPU with 16 GB (Jetson Orin NX 16 GB)", True, 14 * 10**9, CATALOGUE["qwen3-4b"]),
    Recommendation("a GPU with 12 GB (RTX 4070)", True, 11 * 10**9, CATALOGUE["qwen3-8b"], "4bit"),
    Recommendation("a GPU with 8 GB (Jetson Orin Nano)", True, 7 * 10**9, CATALOGUE["qwen3-1.7b"]),
    Recommendation("a GPU with 4 GB", True, 3 * 10**9, CATALOGUE["qwen3-0.6b"]),
    Recommendation("a CPU with 6 GB of memory", False, 5 * 10**9, CATALOGUE["qwen3-1.7b-gguf"]),
    Recommendation("a CPU with 3 GB of memory", False, 25 * 10**8, CATALOGUE["qwen3-0.6b-gguf"]),
    Recommendation("a CPU with 6 GB of memory", False, 5 * 10**9, CATALOGUE["qwen2.5-coder-1.5b"]),
    Recommendation("a CPU with 3 GB of memory", False, 25 * 10**8, CATALOGUE["qwen2.5-coder-0.5b"]),
    Recommendation("a machine with little memory", False, 0, SMOLLM2),
)


def recommend(
    total_memory_bytes: int, has_cuda: bool, cuda_memory_bytes: int = 0, cpu_speed: float = inf
) -> Iterator[Recommendation]:
    """Models for a machine, the best first; the last one is for every machine.

    Args:
        total_memory_bytes: main memory.
        has_cuda: whether torch can use a GPU.
        cuda_memory_bytes: the GPU's memory; on boards that share it, all of it.
        cpu_speed: weights times tokens that the CPU reads in a second.
    """
    for row in DEVICE_CLASSES:
        memory = cuda_memory_bytes if row.has_cuda else total_memory_bytes
        is_slow = not row.has_cuda and row.needs_hub and cpu_speed < _FEWEST_TOKENS * row.model.num_read_parameters
        if memory >= row.min_memory_bytes and (has_cuda or not row.has_cuda) and not is_slow:
            yield row
