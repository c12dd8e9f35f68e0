"""Counting what the pot still holds, from the provenance of its slots."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from torch import Tensor

from ondevice.events import HeadCounts


def count_heads(origin: Tensor, num_tokens: int) -> HeadCounts:
    """(layer, head) pairs that hold each document token.

    Args:
        origin: of any shape, int32; negative = no document token.
        num_tokens: document tokens to report on.
    """
    # Sorted where the pot is: one copy is all that a device is waited for.
    held = origin.flatten().sort().values.cpu().numpy()
    held = held[np.searchsorted(held, 0) :]
    starts = np.flatnonzero(np.diff(held, prepend=np.int32(-1)))
    return HeadCounts(num_tokens, held[starts], np.diff(starts, append=held.size).astype(np.uint16))


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
