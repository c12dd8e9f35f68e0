"""The speed of opening saved pots on this machine, and the documents for which that beats reading again."""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from ondevice.pot.saving import read_header, read_tensors, write_pot

_BYTES = 32_000_000
_TENSORS = 4


@dataclass(frozen=True, slots=True)
class LoadRule:
    """Opening against reading.

    Attributes:
        saved_bytes: of the pot with its host tier.
        bytes_per_second: at which files are read, checked and put in memory here.
        tokens_per_second: of reading, as measured; None where it is not known.
    """

    saved_bytes: int
    bytes_per_second: float
    tokens_per_second: float | None

    @property
    def seconds(self) -> float:
        """That opening takes."""
        return self.saved_bytes / self.bytes_per_second

    @property
    def pays_from(self) -> int | None:
        """Tokens of a document from which on opening is faster; None where the speed of reading is not known."""
        return None if self.tokens_per_second is None else round(self.seconds * self.tokens_per_second)


def load_rate() -> float:
    """Bytes a second, measured now on a small pot that was just written: the disk itself may be slower."""
    tensors = {str(i): torch.zeros(_BYTES // _TENSORS, dtype=torch.uint8) for i in range(_TENSORS)}
    with tempfile.TemporaryDirectory(prefix="ondevice-load-") as folder:
        path = Path(folder) / "pot"
        write_pot(path, tensors, {})
        began = time.perf_counter()
        found = read_tensors(path, read_header(path)["sha256"])
        for name, tensor in found.items():
            tensors[name].copy_(tensor)
        return _BYTES / (time.perf_counter() - began)
