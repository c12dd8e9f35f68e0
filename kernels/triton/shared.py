"""Functions that several Triton kernels of attention share; Triton writes them out in each of these."""

# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def turned(  # type: ignore[no-untyped-def]
    x_ptr, cos_ptr, sin_ptr, dim, is_there, ROTARY_DIM: tl.constexpr, HEAD_DIM: tl.constexpr
):
    """Vectors before and after RoPE, of which the first ROTARY_DIM numbers turn; their numbers `dim`, and 0 where they
    are not there or end."""
    half: tl.constexpr = ROTARY_DIM // 2
    partner = tl.where(dim < half, dim + half, dim - half)
    turns = is_there & (dim < ROTARY_DIM)
    x = tl.load(x_ptr + dim, mask=is_there & (dim < HEAD_DIM), other=0.0)
    swapped = tl.load(x_ptr + partner, mask=turns, other=0.0).to(tl.float32)
    cos = tl.load(cos_ptr + dim, mask=turns, other=1.0).to(tl.float32)
    sin = tl.load(sin_ptr + dim, mask=turns, other=0.0).to(tl.float32)
    # The first product is rounded as torch rounds it in `rotate`, so that keys rotated later come out the same.
    first = (x.to(tl.float32) * cos).to(x.dtype).to(tl.float32)
    return x, (first + swapped * sin).to(x.dtype)


@triton.jit
def load_query(  # type: ignore[no-untyped-def]  # the arguments have the types of the call
    query_ptr,
    row,
    kv_head,
    num_kv_heads,
    GROUPS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PADDED_GROUPS: tl.constexpr,
    PADDED_DIM: tl.constexpr,
    IN_FLOAT32: tl.constexpr,
):
    """The query heads (PADDED_GROUPS, PADDED_DIM) of one KV head of a contiguous tensor, their offsets and mask."""
    group = tl.arange(0, PADDED_GROUPS)
    dim = tl.arange(0, PADDED_DIM)
    head = (row * num_kv_heads + kv_head) * GROUPS + group
    offs = head[:, None] * HEAD_DIM + dim[None, :]
    mask = (group < GROUPS)[:, None] & (dim < HEAD_DIM)[None, :]
    query = tl.load(query_ptr + offs, mask=mask, other=0.0)
    if IN_FLOAT32:
        query = query.to(tl.float32)
    return query, offs, mask


@triton.jit
def add_tile(query, keys, values, visible, scale, maximum, total, out):  # type: ignore[no-untyped-def]
    """Add slots to the online softmax (arXiv 1805.02867): with the running maximum m, the sum l of exp(s - m) and the
    sum o of exp(s - m) v, m' = max(m, max s); l and o scale by exp(m - m') before exp(s - m') and exp(s - m') v are
    added. What no row may see adds nothing.
    """
    # "ieee": float32 operands stay float32, where the default would round them to 10 bits
    scores = tl.dot(query, tl.trans(keys), input_precision="ieee") * scale
    scores = tl.where(visible, scores, float("-inf"))
    new_maximum = tl.maximum(maximum, tl.max(scores, axis=1))
    base = tl.where(new_maximum == float("-inf"), 0.0, new_maximum)  # while a row has seen nothing
    weights = tl.exp(scores - base[:, None])
    rescale = tl.exp(maximum - base)
    total = total * rescale + tl.sum(weights, axis=1)
    out = out * rescale[:, None] + tl.dot(weights.to(values.dtype), values, input_precision="ieee")
    return new_maximum, total, out


@triton.jit
def store_part(  # type: ignore[no-untyped-def]
    maximum,
    total,
    out,
    query_offs,
    query_mask,
    out_ptr,
    partial_ptr,
    statistic_ptr,
    SPLITS: tl.constexpr,
    GROUPS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
):
    """Write what an online softmax has come to: the output, or of one of several splits what `merge_kernel` takes."""
    if SPLITS == 1:
        out = out / tl.where(total > 0, total, 1.0)[:, None]
        tl.store(out_ptr + query_offs, out.to(out_ptr.dtype.element_ty), mask=query_mask)
    else:
        group = tl.arange(0, out.shape[0])
        place = (tl.program_id(2) * tl.num_programs(1) + tl.program_id(1)) * SPLITS + tl.program_id(0)
        row = place * GROUPS + group
        tl.store(statistic_ptr + row * 2, maximum, mask=group < GROUPS)
        tl.store(statistic_ptr + row * 2 + 1, total, mask=group < GROUPS)
        dim = tl.arange(0, out.shape[1])
        tl.store(partial_ptr + row[:, None] * HEAD_DIM + dim[None, :], out, mask=query_mask)
