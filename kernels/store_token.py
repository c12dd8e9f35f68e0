"""One token's keys and values on their way into a pot: RoPE and the writes, with slot and position on the device.

The host need not know where the token goes, so that a CUDA graph can hold the call.
"""

from ondevice.kernels.backend import uses_triton
from ondevice.kernels.rope import rotate
from torch import Tensor


def store_token_(
    query_keys: Tensor,
    new_values: Tensor,
    cos: Tensor,
    sin: Tensor,
    slot: Tensor,
    position: Tensor,
    keys: Tensor,
    values: Tensor,
    rotated: Tensor,
) -> Tensor:
    """Write one token into a slot of one layer, the same slot in every head, and give its query back after RoPE.

    Args:
        query_keys: (1, num_heads + num_kv_heads, 1, head_dim), queries and keys before RoPE.
        new_values: (1, num_kv_heads, 1, head_dim).
        cos, sin: (num_positions, head_dim), `sin` signed as for `rotate`.
        slot, position: (1,) int32, on the device of the others; below the capacity, and below `num_positions`.
        keys: (1, num_kv_heads, capacity, head_dim), before RoPE, changed in place.
        values: as `keys`.
        rotated: as `keys`, after RoPE.

    Returns:
        (1, num_heads, 1, head_dim), dtype of `query_keys`.
    """
    if uses_triton(query_keys):
        # Imported here: Triton is not there on every machine.
        from ondevice.kernels.triton.store_token import store

        return store(query_keys, new_values, cos, sin, slot, position, keys, values, rotated)
    num_kv_heads = keys.shape[1]
    turned = rotate(query_keys, cos.index_select(0, position), sin.index_select(0, position))
    query, new_rotated = turned.split((turned.shape[1] - num_kv_heads, num_kv_heads), dim=1)
    for buffer, new in ((keys, query_keys[:, -num_kv_heads:]), (values, new_values), (rotated, new_rotated)):
        buffer.index_copy_(2, slot.long(), new)
    return query
