"""Free memory and what fits into it: the one place that is asked before anything large is taken."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

_SHARE = 0.9  # of the free memory; the rest is for forward passes, and for what other programs take meanwhile


def free_memory_bytes(device: torch.device | None = None) -> int:
    """Memory that could be taken on `device` now; None: in the main memory."""
    import psutil  # here, because the parser of documents loads nothing that it does not need

    available = int(psutil.virtual_memory().available)
    if device is None or device.type == "cpu":
        return available
    import torch

    free, _ = torch.cuda.mem_get_info(device)
    # Boards that share memory between CPU and GPU report file caches as used; the system would give them up.
    shares = getattr(torch.cuda.get_device_properties(device), "is_integrated", False)
    return max(int(free), available) if shares else int(free)


def usable_bytes(free_bytes: int) -> int:
    """Bytes of the free memory that a pot, a host tier or a cache may take."""
    return int(_SHARE * max(free_bytes, 0))
