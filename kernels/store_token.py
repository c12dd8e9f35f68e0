"""One token's keys and values on their way into a pot: RoPE and the writes, with slot and position on the device.

The host need not know where the token goes, so that a CUDA graph can hold the call.
"""

import torch
from ondevice.kernels.backend import uses_triton
from ondevice.kernels.codes import Coded, around, encode
from ondevice.kernels.rope import rotate
from torch import Tensor

Slots = tuple[Tensor, Tensor, Tensor]


def store_token_(
    query_keys: Tensor, new_values: Tensor, cos: Tensor, sin: Tensor, slot: Tensor, position: Tensor, slots: Slots
) -> Tensor:
    """Write one token into a slot of one layer, the same slot in every head, and give its query back after RoPE.

    Args:
        query_keys: (1, heads + kv_heads, 1, dim), queries and keys before RoPE.
        new_values: (1, kv_heads, 1, dim).
        cos, sin: (num_positions, dim), `sin` signed as for `rotate`.
        slot, position: (1,) int32, on the device of the others; below the capacity, and below `num_positions`.
        slots: keys before RoPE, values, and keys after RoPE, (1, kv_heads, capacity, dim) each, changed in
            place.

    Returns:
        (1, heads, 1, dim), dtype of `query_keys`.
    """
    if uses_triton(query_keys):
        # Imported here: Triton is not there on every machine.
        from ondevice.kernels.triton.store_token import store

        return store(query_keys, new_values, cos, sin, slot, position, slots)
    num_kv_heads = new_values.shape[1]
    turned = _turned(query_keys, cos, sin, position)
    query, new_rotated = turned.split((turned.shape[1] - num_kv_heads, num_kv_heads), dim=1)
    for buffer, new in zip(slots, (query_keys[:, -num_kv_heads:], new_values, new_rotated), strict=True):
        buffer.index_copy_(2, slot.long(), new)
    return query


def store_codes_(
    query_keys: Tensor, new_values: Tensor, cos: Tensor, sin: Tensor, slot: Tensor, position: Tensor, coded: Coded
) -> Tensor:
    """Do the same where keys and values are quantised: they are rounded on their way.

    Args:
        query_keys, new_values, cos, sin, slot, position: as for `store_token_`.
        coded: all slots of the layer, batch 1, changed in place.

    Returns:
        (1, heads, 1, dim), dtype of `query_keys`.
    """
    if uses_triton(query_keys):
        # Imported here: Triton is not there on every machine.
        from ondevice.kernels.triton.store_codes import store_codes

        return store_codes(query_keys, new_values, cos, sin, slot, position, coded)
    num_kv_heads = new_values.shape[1]
    query, new_keys = query_keys.split((query_keys.shape[1] - num_kv_heads, num_kv_heads), dim=1)
    for new, codes, scales in (
        (around(new_keys, coded.frame), coded.keys, coded.key_scales),
        (new_values, coded.values, coded.value_scales),
    ):
        for buffer, part in zip((codes, scales), encode(new, 8 if codes.dtype == torch.int8 else 4), strict=True):
            buffer.index_copy_(2, slot.long(), part)
    return _turned(query, cos, sin, position)


def _turned(x: Tensor, cos: Tensor, sin: Tensor, position: Tensor) -> Tensor:
    return rotate(x, cos.index_select(0, position), sin.index_select(0, position))
