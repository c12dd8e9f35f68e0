"""The Triton kernel of `rope_attention`: keys are rotated in registers, on their way from memory to the product."""

# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from ondevice.kernels.triton.shared import add_tile, load_query, turned
from ondevice.kernels.triton.tiles import tile_sizes
from torch import Tensor


def rotate_and_attend(
    query: Tensor, keys: Tensor, values: Tensor, positions: Tensor, cos: Tensor, sin: Tensor, scale: float
) -> Tensor:
    """Launch the kernel; shapes as for `rope_attention`."""
    batch, num_heads, _, head_dim = query.shape
    num_kv_heads, num_slots = keys.shape[1:3]
    assert keys.stride() == values.stride()
    assert keys.stride()[2:] == (head_dim, 1)
    cos, sin, query = cos.contiguous(), sin.contiguous(), query.contiguous()
    positions = positions.expand(batch, num_kv_heads, num_slots)
    assert positions.stride(2) == 1
    out = torch.empty_like(query)
    rope_attention_kernel[(batch, num_kv_heads)](
        query,
        keys,
        values,
        positions,
        cos,
        sin,
        out,
        scale,
        num_slots,
        num_kv_heads,
        keys.stride(0),
        keys.stride(1),
        positions.stride(0),
        positions.stride(1),
        ROTARY_DIM=cos.shape[-1],
        **tile_sizes(num_heads // num_kv_heads, head_dim, query.dtype),
    )
    return out


@triton.jit
def rope_attention_kernel(  # type: ignore[no-untyped-def]  # the arguments have the types of the call
    query_ptr,
    key_ptr,
    value_ptr,
    position_ptr,
    cos_ptr,
    sin_ptr,
    out_ptr,
    scale,
    num_slots,
    num_kv_heads,
    batch_stride,
    head_stride,
    position_batch_stride,
    position_head_stride,
    ROTARY_DIM: tl.constexpr,
    GROUPS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PADDED_GROUPS: tl.constexpr,
    PADDED_DIM: tl.constexpr,
    TILE: tl.constexpr,
    IN_FLOAT32: tl.constexpr,
):
    """out = softmax(scale * q RoPE(K)^T) V for the query heads of one KV head, in tiles of slots."""
    row = tl.program_id(0)
    kv_head = tl.program_id(1)
    dim = tl.arange(0, PADDED_DIM)
    tile = tl.arange(0, TILE)
    # RoPE adds to each dimension its partner half a rotation away; after ROTARY_DIM nothing turns.
    half: tl.constexpr = ROTARY_DIM // 2
    turns = dim < ROTARY_DIM
    partner = tl.where(dim < half, dim + half, dim - half)

    query, query_offs, query_mask = load_query(
        query_ptr, row, kv_head, num_kv_heads, GROUPS, HEAD_DIM, PADDED_GROUPS, PADDED_DIM, IN_FLOAT32
    )

    first = row.to(tl.int64) * batch_stride + kv_head.to(tl.int64) * head_stride
    first_position = row * position_batch_stride + kv_head * position_head_stride
    maximum = tl.full([PADDED_GROUPS], float("-inf"), dtype=tl.float32)
    total = tl.zeros([PADDED_GROUPS], dtype=tl.float32)
    out = tl.zeros([PADDED_GROUPS, PADDED_DIM], dtype=tl.float32)
    for start in range(0, num_slots, TILE):
        slot = start + tile
        mask = slot < num_slots
        tile_mask = mask[:, None] & (dim < HEAD_DIM)[None, :]
        turn_mask = mask[:, None] & turns[None, :]
        offs = first + slot[:, None] * HEAD_DIM
        keys = tl.load(key_ptr + offs + dim[None, :], mask=tile_mask, other=0.0).to(tl.float32)
        partners = tl.load(key_ptr + offs + partner[None, :], mask=turn_mask, other=0.0).to(tl.float32)
        position = tl.load(position_ptr + first_position + slot, mask=mask, other=0)
        rotated = turned(keys, partners, position, cos_ptr, sin_ptr, mask, ROTARY_DIM, PADDED_DIM)
        values = tl.load(value_ptr + offs + dim[None, :], mask=tile_mask, other=0.0)
        if IN_FLOAT32:
            values = values.to(tl.float32)
        keys = rotated.to(query.dtype)
        maximum, total, out = add_tile(query, keys, values, mask[None, :], scale, maximum, total, out)
    tl.store(out_ptr + query_offs, (out / total[:, None]).to(out_ptr.dtype.element_ty), mask=query_mask)
