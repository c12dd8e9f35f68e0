"""Memory bandwidth of this machine in bytes per second, by a sum over far more than its caches hold."""

from __future__ import annotations

import time

import torch

from ondevice_bench.speed.reference import synchronize

_BYTES = 512 * 1024 * 1024


class ReadBandwidth:
    """Measures one device.

    Args:
        device: where the memory is.
        num_bytes: read at a time.
    """

    def __init__(self, device: torch.device, num_bytes: int = _BYTES) -> None:
        self._data = torch.ones(num_bytes // 4, dtype=torch.float32, device=device)
        self._data.sum()  # the first touch of the pages is not reading

    @property
    def num_bytes(self) -> int:
        """Of one pass."""
        return self._data.nbytes

    def measure(self) -> float:
        """Bytes per second, of one pass."""
        synchronize(self._data.device)
        began = time.perf_counter()
        self._data.sum()
        synchronize(self._data.device)
        return self._data.nbytes / (time.perf_counter() - began)
