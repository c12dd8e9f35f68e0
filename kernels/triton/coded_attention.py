"""The Triton kernel of `coded_attention`: codes are made wide, and keys rotated, in registers."""

# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from ondevice.kernels.codes import Coded
from ondevice.kernels.quantize import num_groups
from ondevice.kernels.triton.decode_attention import split
from ondevice.kernels.triton.shared import add_tile, load_query, store_part
from ondevice.kernels.triton.tiles import tile_sizes
from torch import Tensor


def bits_of(coded: Coded, head_dim: int) -> list[int]:
    """Bits of the codes of keys and of values, which lie as the kernels take them."""
    bits = [4 if stored.dtype == torch.uint8 else 8 for stored in coded[:2]]
    for stored, part, width in zip(coded[:2], coded[2:4], bits, strict=True):
        assert stored.stride()[2:] == (head_dim // 2 if width == 4 else head_dim, 1)
        assert part.stride(2) == (2 * num_groups(head_dim) if width == 4 else 1) or part.shape[2] == 1
    return bits


def widen_and_attend(
    query: Tensor,
    coded: Coded,
    positions: Tensor,
    cos: Tensor,
    sin: Tensor,
    num_used: Tensor,
    *,
    scale: float,
    num_splits: int | None = None,
) -> Tensor:
    """Launch the kernels; shapes as for `used_coded_attention`, `num_splits` as for `split`."""
    batch, num_heads, _, head_dim = query.shape
    num_kv_heads, num_slots = coded.keys.shape[1:3]
    (codes, scales), bits = (coded[:2], coded[2:4]), bits_of(coded, head_dim)
    cos, sin, query = cos.contiguous(), sin.contiguous(), query.contiguous()
    positions = positions.expand(batch, num_kv_heads, num_slots)
    assert positions.stride(2) == 1 or num_slots == 1
    sizes = tile_sizes(num_heads // num_kv_heads, head_dim, query.dtype)
    splits = split(query, num_kv_heads, -(-num_slots // sizes["TILE"]), num_splits)
    coded_attention_kernel[(splits.num, num_kv_heads, batch)](
        query,
        *codes,
        *scales,
        coded.frame.mean.contiguous(),
        coded.frame.spread.contiguous(),
        positions,
        cos,
        sin,
        splits.out,
        splits.partial,
        splits.statistics,
        num_used,
        scale,
        *(stride for part in (*codes, *scales, positions) for stride in part.stride()[:2]),
        ROTARY_DIM=cos.shape[-1],
        GROUP_SIZE=head_dim // num_groups(head_dim),
        KEY_BITS=bits[0],
        VALUE_BITS=bits[1],
        SPLITS=splits.num,
        **sizes,
    )
    return splits.merged(num_kv_heads)


@triton.jit
def _widened(  # type: ignore[no-untyped-def]  # the arguments have the types of the call
    stored_ptr,
    scales_ptr,
    slot,
    slots,
    dim,
    dims,
    BITS: tl.constexpr,
    GROUP_SIZE: tl.constexpr,
    HEAD_DIM: tl.constexpr,
):
    """The numbers `dim` of the vectors in `slot` as float32, and 0 where one of the masks `slots` and `dims` is not
    set: in 8 bits a scale for each vector; in 4 two numbers a byte, half a vector apart, with the step and the smallest
    number of each group of GROUP_SIZE."""
    mask = slots[:, None] & dims[None, :]
    if BITS == 4:
        middle: tl.constexpr = HEAD_DIM // 2
        group = slot[:, None] * (2 * (HEAD_DIM // GROUP_SIZE)) + (dim // GROUP_SIZE * 2)[None, :]
        step = tl.load(scales_ptr + group, mask=mask, other=0.0).to(tl.float32)
        low = tl.load(scales_ptr + group + 1, mask=mask, other=0.0).to(tl.float32)
        pair = tl.load(stored_ptr + slot[:, None] * middle + (dim % middle)[None, :], mask=mask, other=0).to(tl.int32)
        wide = ((pair >> (dim // middle * 4)[None, :]) & 15).to(tl.float32) * step + low
    else:
        wide = tl.load(stored_ptr + slot[:, None] * HEAD_DIM + dim[None, :], mask=mask, other=0).to(tl.float32)
        wide = wide * tl.load(scales_ptr + slot, mask=slots, other=0.0)[:, None]
    return wide


@triton.jit(do_not_specialize_on_alignment=["length_ptr"])  # they lie in one table for all layers
def coded_attention_kernel(  # type: ignore[no-untyped-def]
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
    partial_ptr,
    statistic_ptr,
    length_ptr,
    scale,
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
    KEY_BITS: tl.constexpr,
    VALUE_BITS: tl.constexpr,
    SPLITS: tl.constexpr,
    GROUPS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PADDED_GROUPS: tl.constexpr,
    PADDED_DIM: tl.constexpr,
    TILE: tl.constexpr,
    IN_FLOAT32: tl.constexpr,
):
    """out = softmax(scale * q RoPE(K)^T) V for the query heads of one KV head, in tiles of slots; part p of P reads the
    tiles p, p + P, ..."""
    part = tl.program_id(0)
    kv_head = tl.program_id(1)
    row = tl.program_id(2)
    num_slots = tl.load(length_ptr)
    dim = tl.arange(0, PADDED_DIM)
    tile = tl.arange(0, TILE)
    # RoPE adds to each dimension its partner half a rotation away; after ROTARY_DIM nothing turns.
    half: tl.constexpr = ROTARY_DIM // 2
    turns = dim < ROTARY_DIM
    is_there = dim < HEAD_DIM
    partner = tl.where(dim < half, dim + half, dim - half)

    query, query_offs, query_mask = load_query(
        query_ptr, row, kv_head, tl.num_programs(1), GROUPS, HEAD_DIM, PADDED_GROUPS, PADDED_DIM, IN_FLOAT32
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
    for start in range(part * TILE, num_slots, SPLITS * TILE):
        slot = start + tile
        mask = slot < num_slots
        keys = _widened(first_key, key_scales, slot, mask, dim, is_there, KEY_BITS, GROUP_SIZE, HEAD_DIM)
        partners = _widened(first_key, key_scales, slot, mask, partner, turns, KEY_BITS, GROUP_SIZE, HEAD_DIM)
        values = _widened(first_value, value_scales, slot, mask, dim, is_there, VALUE_BITS, GROUP_SIZE, HEAD_DIM)
        keys = keys * spread[None, :] + mean[None, :]
        partners = partners * partner_spread[None, :] + partner_mean[None, :]
        # Dimensions from ROTARY_DIM on, and slots that the mask leaves out, stay.
        angle = tl.load(position_ptr + first_position + slot, mask=mask, other=0)[:, None] * ROTARY_DIM + dim[None, :]
        turn_mask = mask[:, None] & turns[None, :]
        cos = tl.load(cos_ptr + angle, mask=turn_mask, other=1.0).to(tl.float32)
        sin = tl.load(sin_ptr + angle, mask=turn_mask, other=0.0).to(tl.float32)
        keys, values = (keys * cos + partners * sin).to(query.dtype), values.to(query.dtype)
        maximum, total, out = add_tile(query, keys, values, mask[None, :], scale, maximum, total, out)
    store_part(
        maximum,
        total,
        out,
        query_offs,
        query_mask,
        out_ptr,
        partial_ptr,
        statistic_ptr,
        SPLITS,
        GROUPS,
        HEAD_DIM,
    )
