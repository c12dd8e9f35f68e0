"""The Triton kernel of `store_token_`: one launch where torch takes eight."""

# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl
from ondevice.kernels.triton.shared import turned
from ondevice.kernels.triton.tiles import power_of_two
from torch import Tensor


def store(
    query_keys: Tensor,
    new_values: Tensor,
    cos: Tensor,
    sin: Tensor,
    slot: Tensor,
    position: Tensor,
    slots: tuple[Tensor, Tensor, Tensor],
) -> Tensor:
    """Launch the kernel; shapes as for `store_token_`."""
    _, num_both, _, head_dim = query_keys.shape
    num_kv_heads, (keys, values, rotated) = new_values.shape[1], slots
    num_heads = num_both - num_kv_heads
    assert query_keys.stride(3) == new_values.stride(3) == cos.stride(1) == sin.stride(1) == 1
    assert cos.shape[1] == head_dim
    assert cos.stride() == sin.stride()
    assert keys.stride() == values.stride() == rotated.stride()
    assert keys.stride(3) == 1
    out = query_keys.new_empty((1, num_heads, 1, head_dim))
    store_token_kernel[(num_both + num_kv_heads,)](
        query_keys,
        new_values,
        cos,
        sin,
        slot,
        position,
        *slots,
        out,
        query_keys.stride(1),
        new_values.stride(1),
        cos.stride(0),
        keys.stride(1),
        keys.stride(2),
        NUM_HEADS=num_heads,
        NUM_KV_HEADS=num_kv_heads,
        HEAD_DIM=head_dim,
        PADDED_DIM=power_of_two(head_dim),
        num_warps=1,
    )
    return out


@triton.jit(do_not_specialize_on_alignment=["slot_ptr", "position_ptr"])  # they lie in one table for all layers
def store_token_kernel(  # type: ignore[no-untyped-def]  # the arguments have the types of the call
    query_key_ptr,
    new_value_ptr,
    cos_ptr,
    sin_ptr,
    slot_ptr,
    position_ptr,
    key_ptr,
    value_ptr,
    rotated_ptr,
    out_ptr,
    head_stride,
    new_value_stride,
    angle_stride,
    pot_head_stride,
    pot_slot_stride,
    NUM_HEADS: tl.constexpr,
    NUM_KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PADDED_DIM: tl.constexpr,
):
    """A program for each head of queries, keys and values, in this order."""
    head = tl.program_id(0)
    dim = tl.arange(0, PADDED_DIM)
    mask = dim < HEAD_DIM
    # 64 bits: large storage has more numbers than 32 bits count.
    slot = tl.load(slot_ptr).to(tl.int64)
    if head < NUM_HEADS + NUM_KV_HEADS:
        angle = tl.load(position_ptr).to(tl.int64) * angle_stride
        x, after = turned(
            query_key_ptr + head * head_stride, cos_ptr + angle, sin_ptr + angle, dim, mask, HEAD_DIM, HEAD_DIM
        )
        if head < NUM_HEADS:
            tl.store(out_ptr + head * HEAD_DIM + dim, after, mask=mask)
        else:
            at = (head - NUM_HEADS).to(tl.int64) * pot_head_stride + slot * pot_slot_stride + dim
            tl.store(key_ptr + at, x, mask=mask)
            tl.store(rotated_ptr + at, after, mask=mask)
    else:
        kv_head = head - NUM_HEADS - NUM_KV_HEADS
        new = tl.load(new_value_ptr + kv_head * new_value_stride + dim, mask=mask, other=0.0)
        tl.store(value_ptr + kv_head.to(tl.int64) * pot_head_stride + slot * pot_slot_stride + dim, new, mask=mask)
