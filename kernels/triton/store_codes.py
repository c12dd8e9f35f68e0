"""The Triton kernel of `store_codes_`: one launch where torch takes some thirty."""

# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl
from ondevice.kernels.codes import Coded
from ondevice.kernels.quantize import num_groups
from ondevice.kernels.triton.coded_attention import bits_of
from ondevice.kernels.triton.shared import turned
from ondevice.kernels.triton.tiles import power_of_two
from torch import Tensor


def store_codes(
    query_keys: Tensor, new_values: Tensor, cos: Tensor, sin: Tensor, slot: Tensor, position: Tensor, coded: Coded
) -> Tensor:
    """Launch the kernel; shapes as for `store_codes_`."""
    _, num_both, _, head_dim = query_keys.shape
    num_kv_heads = new_values.shape[1]
    num_heads, groups = num_both - num_kv_heads, num_groups(head_dim)
    bits = bits_of(coded, head_dim)
    assert query_keys.stride(3) == new_values.stride(3) == cos.stride(1) == sin.stride(1) == 1
    assert cos.shape[1] == head_dim
    assert cos.stride() == sin.stride()
    out = query_keys.new_empty((1, num_heads, 1, head_dim))
    store_codes_kernel[(num_both + num_kv_heads,)](
        query_keys,
        new_values,
        cos,
        sin,
        slot,
        position,
        *coded[:4],
        coded.frame.mean.contiguous(),
        coded.frame.spread.contiguous(),
        out,
        query_keys.stride(1),
        new_values.stride(1),
        cos.stride(0),
        *(part.stride(1) for part in coded[:4]),
        NUM_HEADS=num_heads,
        NUM_KV_HEADS=num_kv_heads,
        KEY_BITS=bits[0],
        VALUE_BITS=bits[1],
        HALF_GROUPS=groups // 2,
        GROUP_SIZE=head_dim // groups,
        HEAD_DIM=head_dim,
        PADDED_DIM=power_of_two(head_dim),
        PADDED_GROUPS=power_of_two(groups // 2),
        PADDED_SIZE=power_of_two(head_dim // groups),
        num_warps=1,
    )
    return out


@triton.jit
def _nearest(x):  # type: ignore[no-untyped-def]
    """The nearest whole number, the even one of two: what is added leaves a float32 no room for more."""
    return (x + 12582912.0) - 12582912.0


@triton.jit
def _store_eight(x, mask, code_ptr, scale_ptr):  # type: ignore[no-untyped-def]
    scale = tl.div_rn(tl.max(tl.abs(x), axis=0), 127.0)
    divisor = tl.maximum(scale, 1.1754943508222875e-38)  # a vector of zeros has no scale
    dim = tl.arange(0, x.shape[0])
    tl.store(code_ptr + dim, _nearest(tl.div_rn(x, divisor)).to(tl.int8), mask=mask)
    tl.store(scale_ptr, scale)


@triton.jit
def _half_in_four(x, mask, scale_ptr, GROUPS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Codes (groups, numbers) of one half of a vector, whose steps and smallest numbers are stored."""
    low = tl.min(tl.where(mask, x, float("inf")), axis=1)
    high = tl.max(tl.where(mask, x, float("-inf")), axis=1)
    low = tl.minimum(tl.maximum(low, -65504.0), 65504.0).to(tl.float16)
    step = tl.div_rn(high - low.to(tl.float32), 15.0)
    step = tl.minimum(tl.maximum(step, 5.960464477539063e-08), 65504.0).to(tl.float16)  # 2^-24, and the largest
    group = tl.arange(0, x.shape[0])
    tl.store(scale_ptr + 2 * group, step, mask=group < GROUPS)
    tl.store(scale_ptr + 2 * group + 1, low, mask=group < GROUPS)
    codes = _nearest(tl.div_rn(x - low.to(tl.float32)[:, None], step.to(tl.float32)[:, None]))
    return tl.minimum(tl.maximum(codes, 0.0), 15.0).to(tl.int32)


@triton.jit
def _store(  # type: ignore[no-untyped-def]
    new_ptr,
    mean_ptr,
    spread_ptr,
    code_ptr,
    scale_ptr,
    slot,
    IS_FRAMED: tl.constexpr,
    BITS: tl.constexpr,
    HALF_GROUPS: tl.constexpr,
    GROUP_SIZE: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PADDED_DIM: tl.constexpr,
    PADDED_GROUPS: tl.constexpr,
    PADDED_SIZE: tl.constexpr,
):
    """Round one vector of one head into its slot."""
    if BITS == 8:
        dim = tl.arange(0, PADDED_DIM)
        mask = dim < HEAD_DIM
        x = tl.load(new_ptr + dim, mask=mask, other=0.0).to(tl.float32)
        if IS_FRAMED:
            spread = tl.load(spread_ptr + dim, mask=mask, other=1.0)
            x = tl.div_rn(x - tl.load(mean_ptr + dim, mask=mask, other=0.0), spread)
        _store_eight(x, mask, code_ptr + slot * HEAD_DIM, scale_ptr + slot)
    else:
        half: tl.constexpr = HEAD_DIM // 2
        group = tl.arange(0, PADDED_GROUPS)[:, None]
        within = tl.arange(0, PADDED_SIZE)[None, :]
        place = group * GROUP_SIZE + within
        mask = (group < HALF_GROUPS) & (within < GROUP_SIZE)
        first = tl.load(new_ptr + place, mask=mask, other=0.0).to(tl.float32)
        second = tl.load(new_ptr + half + place, mask=mask, other=0.0).to(tl.float32)
        if IS_FRAMED:
            spread = tl.load(spread_ptr + place, mask=mask, other=1.0)
            first = tl.div_rn(first - tl.load(mean_ptr + place, mask=mask, other=0.0), spread)
            spread = tl.load(spread_ptr + half + place, mask=mask, other=1.0)
            second = tl.div_rn(second - tl.load(mean_ptr + half + place, mask=mask, other=0.0), spread)
        scales = scale_ptr + slot * 4 * HALF_GROUPS
        low = _half_in_four(first, mask, scales, HALF_GROUPS)
        high = _half_in_four(second, mask, scales + 2 * HALF_GROUPS, HALF_GROUPS)
        tl.store(code_ptr + slot * half + place, (low | (high << 4)).to(tl.uint8), mask=mask)


@triton.jit(do_not_specialize_on_alignment=["slot_ptr", "position_ptr"])  # they lie in one table for all layers
def store_codes_kernel(  # type: ignore[no-untyped-def]  # the arguments have the types of the call
    query_key_ptr,
    new_value_ptr,
    cos_ptr,
    sin_ptr,
    slot_ptr,
    position_ptr,
    key_ptr,
    value_ptr,
    key_scale_ptr,
    value_scale_ptr,
    mean_ptr,
    spread_ptr,
    out_ptr,
    head_stride,
    new_value_stride,
    angle_stride,
    key_stride,
    value_stride,
    key_scale_stride,
    value_scale_stride,
    NUM_HEADS: tl.constexpr,
    NUM_KV_HEADS: tl.constexpr,
    KEY_BITS: tl.constexpr,
    VALUE_BITS: tl.constexpr,
    HALF_GROUPS: tl.constexpr,
    GROUP_SIZE: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PADDED_DIM: tl.constexpr,
    PADDED_GROUPS: tl.constexpr,
    PADDED_SIZE: tl.constexpr,
):
    """A program for each head of queries, keys and values, in this order."""
    head = tl.program_id(0)
    # 64 bits: large storage has more numbers than 32 bits count.
    slot = tl.load(slot_ptr).to(tl.int64)
    if head < NUM_HEADS:
        dim = tl.arange(0, PADDED_DIM)
        angle = tl.load(position_ptr).to(tl.int64) * angle_stride
        mask, query_ptr = dim < HEAD_DIM, query_key_ptr + head * head_stride
        _, query = turned(query_ptr, cos_ptr + angle, sin_ptr + angle, dim, mask, HEAD_DIM, HEAD_DIM)
        tl.store(out_ptr + head * HEAD_DIM + dim, query, mask=mask)
    elif head < NUM_HEADS + NUM_KV_HEADS:
        kv_head = (head - NUM_HEADS).to(tl.int64)
        _store(
            query_key_ptr + head * head_stride,
            mean_ptr + kv_head * HEAD_DIM,
            spread_ptr + kv_head * HEAD_DIM,
            key_ptr + kv_head * key_stride,
            key_scale_ptr + kv_head * key_scale_stride,
            slot,
            True,
            KEY_BITS,
            HALF_GROUPS,
            GROUP_SIZE,
            HEAD_DIM,
            PADDED_DIM,
            PADDED_GROUPS,
            PADDED_SIZE,
        )
    else:
        kv_head = (head - NUM_HEADS - NUM_KV_HEADS).to(tl.int64)
        _store(
            new_value_ptr + kv_head * new_value_stride,
            mean_ptr,
            spread_ptr,
            value_ptr + kv_head * value_stride,
            value_scale_ptr + kv_head * value_scale_stride,
            slot,
            False,
            VALUE_BITS,
            HALF_GROUPS,
            GROUP_SIZE,
            HEAD_DIM,
            PADDED_DIM,
            PADDED_GROUPS,
            PADDED_SIZE,
        )
