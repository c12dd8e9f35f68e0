"""The Triton kernel of `paged_attention`: one program per sequence and KV head walks the block table.

Triton is imported with the first call.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from ondevice.kernels.triton.tiles import tile_sizes
from torch import Tensor

tl: Any = None  # triton.language, from the first call on; the kernel looks it up here


def walk_blocks(
    query: Tensor, key_blocks: Tensor, value_blocks: Tensor, block_tables: Tensor, lengths: Tensor, scale: float
) -> Tensor:
    """Launch the kernel; shapes as for `paged_attention`."""
    for tensor in (key_blocks, value_blocks, block_tables, lengths):
        assert tensor.is_contiguous()
    batch, num_heads, head_dim = query.shape
    block_size, num_kv_heads = key_blocks.shape[1:3]
    query = query.contiguous()
    out = torch.empty_like(query)
    _compiled()[(batch, num_kv_heads)](
        query,
        key_blocks,
        value_blocks,
        block_tables,
        lengths,
        out,
        scale,
        block_tables.shape[1],
        num_kv_heads,
        BLOCK_SIZE=block_size,
        **tile_sizes(num_heads // num_kv_heads, head_dim, query.dtype),
    )
    return out


@cache
def _compiled() -> Any:
    global tl
    import triton
    import triton.language

    tl = triton.language
    return triton.jit(_paged_attention_kernel)


def _paged_attention_kernel(  # type: ignore[no-untyped-def]  # the arguments have the types of the call
    query_ptr,
    key_ptr,
    value_ptr,
    table_ptr,
    length_ptr,
    out_ptr,
    scale,
    max_blocks,
    num_kv_heads,
    GROUPS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    PADDED_GROUPS: tl.constexpr,
    PADDED_DIM: tl.constexpr,
    TILE: tl.constexpr,
    IN_FLOAT32: tl.constexpr,
):
    """out = softmax(scale * q K^T) V for the query heads of one KV head, in tiles of slots.

    Online softmax (arXiv 1805.02867): with the running maximum m, the sum l of exp(s - m) and the sum o of
    exp(s - m) v, a new tile changes m to m' = max(m, max s), and scales l and o by exp(m - m') before adding.
    """
    row = tl.program_id(0)
    kv_head = tl.program_id(1)
    length = tl.load(length_ptr + row)
    group = tl.arange(0, PADDED_GROUPS)
    dim = tl.arange(0, PADDED_DIM)
    tile = tl.arange(0, TILE)

    head = (row * num_kv_heads + kv_head) * GROUPS + group
    query_offs = head[:, None] * HEAD_DIM + dim[None, :]
    query_mask = (group < GROUPS)[:, None] & (dim < HEAD_DIM)[None, :]
    query = tl.load(query_ptr + query_offs, mask=query_mask, other=0.0)
    if IN_FLOAT32:
        query = query.to(tl.float32)

    maximum = tl.full([PADDED_GROUPS], float("-inf"), dtype=tl.float32)
    total = tl.zeros([PADDED_GROUPS], dtype=tl.float32)
    out = tl.zeros([PADDED_GROUPS, PADDED_DIM], dtype=tl.float32)
    for start in range(0, length, TILE):
        slot = start + tile
        mask = slot < length
        physical = tl.load(table_ptr + row * max_blocks + slot // BLOCK_SIZE, mask=mask, other=0)
        # 64 bits: large storage has more numbers than 32 bits count.
        place = (physical.to(tl.int64) * BLOCK_SIZE + slot % BLOCK_SIZE) * num_kv_heads + kv_head
        offs = place[:, None] * HEAD_DIM + dim[None, :]
        tile_mask = mask[:, None] & (dim < HEAD_DIM)[None, :]
        keys = tl.load(key_ptr + offs, mask=tile_mask, other=0.0)
        values = tl.load(value_ptr + offs, mask=tile_mask, other=0.0)
        if IN_FLOAT32:
            keys = keys.to(tl.float32)
            values = values.to(tl.float32)
        # "ieee": float32 operands stay float32, where the default would round them to 10 bits
        scores = tl.dot(query, tl.trans(keys), input_precision="ieee") * scale
        scores = tl.where(mask[None, :], scores, float("-inf"))
        new_maximum = tl.maximum(maximum, tl.max(scores, axis=1))
        weights = tl.exp(scores - new_maximum[:, None])
        rescale = tl.exp(maximum - new_maximum)
        total = total * rescale + tl.sum(weights, axis=1)
        out = out * rescale[:, None] + tl.dot(weights.to(values.dtype), values, input_precision="ieee")
        maximum = new_maximum
    # A sequence without slots has sum 0, and gets zeros.
    out = out / tl.where(total > 0, total, 1.0)[:, None]
    tl.store(out_ptr + query_offs, out.to(out_ptr.dtype.element_ty), mask=query_mask)
