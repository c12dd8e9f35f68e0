"""Copies between a device and the host memory beside it."""

from __future__ import annotations

import torch
from torch import Tensor


def to_host(tensor: Tensor) -> Tensor:
    """A tensor in host memory; from CUDA through pinned memory, which lets other streams go on meanwhile."""
    if tensor.device.type != "cuda":
        return tensor.cpu()
    pinned = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    pinned.copy_(tensor, non_blocking=True)
    torch.cuda.current_stream().synchronize()
    return pinned


def to_device(tensor: Tensor, device: torch.device | str) -> Tensor:
    """The inverse; the copy to CUDA goes on while this thread does other things."""
    return tensor if torch.device(device).type == "cpu" else tensor.pin_memory().to(device, non_blocking=True)
