"""Functions that several Triton kernels of attention share; Triton writes them out in each of these."""

# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl


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
