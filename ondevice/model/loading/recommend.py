"""Which model to try on which machine: a table, and the row that fits.

All are instruct models that anyone may download (Apache-2.0). Parameter counts follow from the published
configurations; bytes are computed from them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ondevice.config import DEFAULT_MODEL

_EMBEDDING_BYTES = 2  # embeddings stay in bfloat16 when the rest is quantised
_FOUR_BIT_BYTES = 0.5 + 4 / 64  # one float32 scale for 64 weights


@dataclass(frozen=True, slots=True)
class ModelSize:
    """A model and what its weights take.

    Attributes:
        hub_id: owner/name on the hub.
        num_parameters: all weights, the output layer counted once where it is tied.
        num_embedding_parameters: those of embedding and output layer, which are never quantised.
    """

    hub_id: str
    num_parameters: int
    num_embedding_parameters: int

    def weight_bytes(self, element_bytes: int = 2) -> int:
        """Bytes without quantisation: 2 for each weight in bfloat16, 4 in float32."""
        return self.num_parameters * element_bytes

    @property
    def four_bit_bytes(self) -> int:
        quantized = self.num_parameters - self.num_embedding_parameters
        return int(quantized * _FOUR_BIT_BYTES) + self.num_embedding_parameters * _EMBEDDING_BYTES


QWEN3_0_6B = ModelSize("Qwen/Qwen3-0.6B", 596_049_920, 151_936 * 1024)
QWEN3_1_7B = ModelSize("Qwen/Qwen3-1.7B", 1_720_574_976, 151_936 * 2048)
QWEN3_4B = ModelSize("Qwen/Qwen3-4B-Instruct-2507", 4_022_468_096, 151_936 * 2560)
QWEN3_8B = ModelSize("Qwen/Qwen3-8B", 8_190_735_360, 2 * 151_936 * 4096)
QWEN3_14B = ModelSize("Qwen/Qwen3-14B", 14_768_307_200, 2 * 151_936 * 5120)


@dataclass(frozen=True, slots=True)
class DeviceClass:
    """One row of the table: machines with at least `min_memory_bytes`, and the model for them.

    Thresholds lie below the number on the box: a board of 8 GB reports 7.4.
    """

    label: str
    has_cuda: bool
    min_memory_bytes: int
    model: ModelSize
    quantization: Literal["none", "4bit"] = "none"

    @property
    def weight_bytes(self) -> int:
        if self.quantization == "4bit":
            return self.model.four_bit_bytes
        return self.model.weight_bytes(2 if self.has_cuda else 4)


# Best first. On a CPU time is the limit before memory is, hence smaller models there (float32: 4 bytes each).
DEVICE_CLASSES = (
    DeviceClass("a GPU with 40 GB or more (Jetson AGX Orin 64 GB)", True, 38 * 10**9, QWEN3_14B),
    DeviceClass("a GPU with 24 GB (RTX 4090, Jetson AGX Orin 32 GB)", True, 22 * 10**9, QWEN3_8B),
    DeviceClass("a GPU with 16 GB (Jetson Orin NX 16 GB)", True, 14 * 10**9, QWEN3_4B),
    DeviceClass("a GPU with 12 GB (RTX 4070)", True, 11 * 10**9, QWEN3_8B, "4bit"),
    DeviceClass("a GPU with 8 GB (Jetson Orin Nano)", True, 7 * 10**9, QWEN3_1_7B),
    DeviceClass("a GPU with 4 GB", True, 3 * 10**9, QWEN3_0_6B),
    DeviceClass("a CPU with 16 GB of memory", False, 14 * 10**9, QWEN3_1_7B),
    DeviceClass("a CPU with 8 GB of memory", False, 7 * 10**9, QWEN3_0_6B),
)


@dataclass(frozen=True, slots=True)
class Recommendation:
    """A model to try.

    Attributes:
        model: hub id, or the default model's name when the machine is too small for a larger one.
        why: one sentence without a full stop.
        command: the one command that starts the app with it.
    """

    model: str
    why: str
    command: str


def recommend(total_memory_bytes: int, has_cuda: bool, cuda_memory_bytes: int = 0) -> Recommendation:
    """The model for a machine.

    Args:
        total_memory_bytes: main memory.
        has_cuda: whether torch can use a GPU.
        cuda_memory_bytes: the GPU's memory; on boards that share it, all of it.
    """
    for row in DEVICE_CLASSES:
        memory = cuda_memory_bytes if row.has_cuda else total_memory_bytes
        if memory >= row.min_memory_bytes and (has_cuda or not row.has_cuda):
            return _from_row(row)
    return Recommendation(
        DEFAULT_MODEL, "with less than 8 GB of memory a larger model leaves no room for a document", "ondevice app"
    )


def _from_row(row: DeviceClass) -> Recommendation:
    if row.quantization == "4bit":
        form = "4 bits"
    else:
        form = "bfloat16" if row.has_cuda else "float32"
    option = "" if row.quantization == "none" else f" --quantization {row.quantization}"
    return Recommendation(
        row.model.hub_id,
        f"its weights take {row.weight_bytes / 1e9:.1f} GB in {form}, which suits {row.label}",
        f"ondevice app --model {row.model.hub_id}{option}",
    )
