"""Counting what the pot still holds, from the provenance of its slots."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor


def count_heads(origin: Tensor, num_tokens: int) -> npt.NDArray[np.uint16]:
    """(layer, head) pairs that hold each document token: (num_tokens,), uint16.

    Args:
        origin: of any shape, int32; negative = no document token.
        num_tokens: document tokens to report on.
    """
    # Where the pot is: one copy of the counts is all that a device is waited for.
    counts = torch.zeros(num_tokens + 1, dtype=torch.int32, device=origin.device)
    places = origin.flatten().clamp(min=-1).long() + 1  # what is no document token is counted first, and dropped
    counts.scatter_add_(0, places, torch.ones_like(places, dtype=torch.int32))
    heads: npt.NDArray[np.int32] = counts[1:].cpu().numpy()
    return heads.astype(np.uint16)


def tokens_per_layer(origin: Tensor) -> tuple[tuple[int, ...], npt.NDArray[np.int32]]:
    """Distinct document tokens that some head holds: how many in each layer, and which in all of them (n,), rising.

    Args:
        origin: (num_layers, ...) int32; negative = no document token.
    """
    per_layer = tuple(int(np.unique(_document_tokens(layer)).size) for layer in origin)
    return per_layer, np.unique(_document_tokens(origin))


def _document_tokens(origin: Tensor) -> npt.NDArray[np.int32]:
    flat = origin.cpu().numpy().ravel()
    return flat[flat >= 0]
