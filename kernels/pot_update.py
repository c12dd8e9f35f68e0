"""In-place changes of the pot's buffers (EQUIP: storage never moves, `data_ptr` never changes).

A slot buffer has shape (batch, kv_heads, capacity) or (batch, kv_heads, capacity, dim).
"""

import torch
from torch import Tensor


def keep_slots_(buffer: Tensor, index: Tensor, num_cached: int) -> Tensor:
    """Lay the slots `index` out at the front of `buffer`, in that order; the rest up to `num_cached` becomes 0.

    Args:
        buffer: slot buffer, changed in place.
        index: (batch, kv_heads, num_kept) int64, distinct slots below `num_cached`, per head.
        num_cached: slots in use before the call.

    Returns:
        `buffer`.
    """
    num_kept = index.shape[-1]
    buffer[:, :, :num_kept] = take_slots(buffer, index)
    buffer[:, :, num_kept:num_cached] = 0
    return buffer


def replace_slots_(buffer: Tensor, index: Tensor | slice, new: Tensor) -> Tensor:
    """Overwrite slots with `new`: EQUIP's in-place replacement (its figure 15).

    Args:
        buffer: contiguous slot buffer, changed in place.
        index: a slice of n slots, the same for all heads (sink and recent tokens); or (batch, kv_heads, n) int64,
            distinct per head (heavy hitters).
        new: (batch, kv_heads, n) or (batch, kv_heads, n, dim), dtype of `buffer`.

    Returns:
        `buffer`.
    """
    if isinstance(index, slice):
        buffer[:, :, index] = new
    elif buffer.dim() == index.dim():
        buffer.scatter_(2, index, new)
    else:  # whole rows are copied; `scatter_` would address every number on its own
        buffer.view(-1, buffer.shape[-1]).index_copy_(0, _rows(index, buffer), new.reshape(-1, buffer.shape[-1]))
    return buffer


def take_slots(buffer: Tensor, index: Tensor) -> Tensor:
    """Return a copy of the slots `index` (batch, kv_heads, n) of `buffer`, per head."""
    if buffer.dim() == index.dim():
        return torch.gather(buffer, 2, index)
    # Whole rows are copied at memory speed; `gather` would address every number on its own.
    rows = buffer.view(-1, buffer.shape[-1]).index_select(0, _rows(index, buffer))
    return rows.view(*index.shape, -1)


def _rows(index: Tensor, buffer: Tensor) -> Tensor:
    """Rows of the buffer seen as (batch * kv_heads * capacity, dim), flat, for slots given per head."""
    batch, num_heads, capacity = buffer.shape[:3]
    first = torch.arange(batch * num_heads, device=index.device).view(batch, num_heads, 1) * capacity
    return (index + first).flatten()
