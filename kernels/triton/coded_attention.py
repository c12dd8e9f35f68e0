"""The Triton kernel of `coded_attention`: codes are made wide, and keys rotated, in registers on their way."""

# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from ondevice.kernels.codes import Coded
from ondevice.kernels.quantize import num_groups
from ondevice.kernels.triton.shared import add_tile, load_query, turned, widened
from ondevice.kernels.triton.tiles import tile_sizes
from torch import Tensor


def widen_and_attend(query: Tensor, coded: Coded, positions: Tensor, cos: Tensor, sin: Tensor, scale: float) -> Tensor:
    """Launch the kernel; shapes as for `coded_attention`."""
    batch, num_heads, _, head_dim = query.shape
    num_kv_heads, num_slots = coded.keys.shape[1:3]
    keys_four, values_four = (codes.dtype == torch.uint8 for codes in (coded.keys, coded.values))
    groups = num_groups(head_dim)
    for codes, scales, is_four in (
        (coded.keys, coded.key_scales, keys_four),
        (coded.values, coded.value_scales, values_four),
    ):
        assert codes.stride()[2:] == (head_dim // (1 + is_four), 1)
        assert scales.stride(2) == (2 * groups if is_four else 1) or num_slots == 1
    cos, sin, query = cos.contiguous(), sin.contiguous(), query.contiguous()
    mean, spread = coded.frame.mean.contiguous(), coded.frame.spread.contiguous()
    positions = positions.expand(batch, num_kv_heads, num_slots)
    assert positions.stride(2) == 1 or num_slots == 1
    out = torch.empty_like(query)
    coded_attention_kernel[(batch, num_kv_heads)](
        query,
        coded.keys,
        coded.values,
        coded.key_scales,
        coded.value_scales,
        mean,
        spread,
        positions,
        cos,
        sin,
        out,
        scale,
        num_slots,
        num_kv_heads,
        *coded.keys.stride()[:2],
        *coded.values.stride()[:2],
        *coded.key_scales.stride()[:2],
        *coded.value_scales.stride()[:2],
        positions.stride(0),
        positions.stride(1),
        ROTARY_DIM=cos.shape[-1],
        GROUP_SIZE=head_dim // groups,
        KEYS_FOUR=keys_four,
        VALUES_FOUR=values_four,
        **tile_sizes(num_heads // num_kv_heads, head_dim, query.dtype),
    )
    return out


@triton.jit
def coded_attention_kernel(  # type: ignore[no-untyped-def]  # the arguments have the types of the call
    query_ptr,
    key_ptr,
    value_ptr,
    key_scale_ptr,
    value_scale_ptr,
    mean_ptr,
    spread_ptr,
    position_ptr,
    cos_ptr,
    sin_ptr,
    out_ptr,
    scale,
    num_slots,
    num_kv_heads,
    key_batch_stride,
    key_head_stride,
    value_batch_stride,
    value_head_stride,
    key_scale_batch_stride,
    key_scale_head_stride,
    value_scale_batch_stride,
    value_scale_head_stride,
    position_batch_stride,
    position_head_stride,
    ROTARY_DIM: tl.constexpr,
    GROUP_SIZE: tl.constexpr,
    KEYS_FOUR: tl.constexpr,
    VALUES_FOUR: tl.constexpr,
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
    is_there = dim < HEAD_DIM
    partner = tl.where(dim < half, dim + half, dim - half)

    query, query_offs, query_mask = load_query(
        query_ptr, row, kv_head, num_kv_heads, GROUPS, HEAD_DIM, PADDED_GROUPS, PADDED_DIM, IN_FLOAT32
    )

    frame = kv_head * HEAD_DIM
    mean = tl.load(mean_ptr + frame + dim, mask=is_there, other=0.0)
    spread = tl.load(spread_ptr + frame + dim, mask=is_there, other=0.0)
    partner_mean = tl.load(mean_ptr + frame + partner, mask=turns, other=0.0)
    partner_spread = tl.load(spread_ptr + frame + partner, mask=turns, other=0.0)

    # The rows and the head are counted in 64 bits: a buffer may have more numbers than 32 bits count.
    wide_row, wide_head = row.to(tl.int64), kv_head.to(tl.int64)
    first_key = key_ptr + wide_row * key_batch_stride + wide_head * key_head_stride
    first_value = value_ptr + wide_row * value_batch_stride + wide_head * value_head_stride
    key_scales = key_scale_ptr + wide_row * key_scale_batch_stride + wide_head * key_scale_head_stride
    value_scales = value_scale_ptr + wide_row * value_scale_batch_stride + wide_head * value_scale_head_stride
    first_position = row * position_batch_stride + kv_head * position_head_stride
    maximum = tl.full([PADDED_GROUPS], float("-inf"), dtype=tl.float32)
    total = tl.zeros([PADDED_GROUPS], dtype=tl.float32)
    out = tl.zeros([PADDED_GROUPS, PADDED_DIM], dtype=tl.float32)
    for start in range(0, num_slots, TILE):
        slot = start + tile
        mask = slot < num_slots
        keys = widened(first_key, key_scales, slot, mask, dim, is_there, KEYS_FOUR, GROUP_SIZE, HEAD_DIM)
        partners = widened(first_key, key_scales, slot, mask, partner, turns, KEYS_FOUR, GROUP_SIZE, HEAD_DIM)
        values = widened(first_value, value_scales, slot, mask, dim, is_there, VALUES_FOUR, GROUP_SIZE, HEAD_DIM)
        keys = keys * spread[None, :] + mean[None, :]
        partners = partners * partner_spread[None, :] + partner_mean[None, :]
        position = tl.load(position_ptr + first_position + slot, mask=mask, other=0)
        rotated = turned(keys, partners, position, cos_ptr, sin_ptr, mask, ROTARY_DIM, PADDED_DIM)
        keys, values = rotated.to(query.dtype), values.to(query.dtype)
        maximum, total, out = add_tile(query, keys, values, mask[None, :], scale, maximum, total, out)
    tl.store(out_ptr + query_offs, (out / total[:, None]).to(out_ptr.dtype.element_ty), mask=query_mask)
