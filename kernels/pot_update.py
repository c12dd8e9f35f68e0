"""In-place changes of the pot's buffers (EQUIP: storage never moves, `data_ptr` never changes).

A slot buffer has shape (batch, num_kv_heads, capacity) or (batch, num_kv_heads, capacity, head_dim).
"""

import torch
from torch import Tensor


def keep_slots_(buffer: Tensor, index: Tensor, num_cached: int) -> Tensor:
    """Lay the slots `index` out at the front of `buffer`, in that order; the rest up to `num_cached` becomes 0.

    Args:
        buffer: slot buffer, changed in place.
        index: (batch, num_kv_heads, num_kept) int64, distinct slots below `num_cached`, per head.
        num_cached: slots in use before the call.

    Returns:
        `buffer`.
    """
    num_kept = index.shape[-1]
    buffer[:, :, :num_kept] = take_slots(buffer, index)
    buffer[:, :, num_kept:num_cached] = 0
    return buffer


def keep_slots_ref(buffer: Tensor, index: Tensor, num_cached: int) -> Tensor:
    """Reference for `keep_slots_`: a new tensor, head by head and slot by slot."""
    out = buffer.clone()
    out[:, :, :num_cached] = 0
    for batch in range(index.shape[0]):
        for head in range(index.shape[1]):
            for to, at in enumerate(index[batch, head].tolist()):
                out[batch, head, to] = buffer[batch, head, at]
    return out


def replace_slots_(buffer: Tensor, index: Tensor, new: Tensor) -> Tensor:
    """Overwrite the slots `index` with `new`, per head: EQUIP's in-place replacement.

    Args:
        buffer: slot buffer, changed in place.
        index: (batch, num_kv_heads, n) int64, distinct per head.
        new: (batch, num_kv_heads, n) or (batch, num_kv_heads, n, head_dim), dtype of `buffer`.

    Returns:
        `buffer`.
    """
    return buffer.scatter_(2, _like(index, buffer), new)


def replace_slots_ref(buffer: Tensor, index: Tensor, new: Tensor) -> Tensor:
    """Reference for `replace_slots_`: a new tensor, head by head and slot by slot."""
    out = buffer.clone()
    for batch in range(index.shape[0]):
        for head in range(index.shape[1]):
            for i, at in enumerate(index[batch, head].tolist()):
                out[batch, head, at] = new[batch, head, i]
    return out


def take_slots(buffer: Tensor, index: Tensor) -> Tensor:
    """Return a copy of the slots `index` (batch, num_kv_heads, n) of `buffer`, per head."""
    if buffer.dim() == index.dim():
        return torch.gather(buffer, 2, index)
    # Whole rows are copied at memory speed; `gather` would address every number on its own.
    batch, num_heads, capacity = buffer.shape[:3]
    first = torch.arange(batch * num_heads, device=index.device).view(batch, num_heads, 1) * capacity
    rows = buffer.view(-1, buffer.shape[-1]).index_select(0, (index + first).flatten())
    return rows.view(*index.shape, -1)


def _like(index: Tensor, buffer: Tensor) -> Tensor:
    if buffer.dim() == index.dim():
        return index
    return index.unsqueeze(-1).expand(*index.shape, buffer.shape[-1])
