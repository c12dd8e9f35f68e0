"""The Triton kernel of `paged_attention`: one program per sequence and KV head walks the block table."""

# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from ondevice.kernels.triton.shared import add_tile, load_query
from ondevice.kernels.triton.tiles import tile_sizes
from torch import Tensor


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
    paged_attention_kernel[(batch, num_kv_heads)](
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


@triton.jit
def paged_attention_kernel(  # type: ignore[no-untyped-def]  # the arguments have the types of the call
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
    """out = softmax(scale * q K^T) V for the query heads of one KV head, in tiles of slots."""
    row = tl.program_id(0)
    kv_head = tl.program_id(1)
    length = tl.load(length_ptr + row)
    dim = tl.arange(0, PADDED_DIM)
    tile = tl.arange(0, TILE)

    query, query_offs, query_mask = load_query(
        query_ptr, row, kv_head, num_kv_heads, GROUPS, HEAD_DIM, PADDED_GROUPS, PADDED_DIM, IN_FLOAT32
    )

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
        maximum, total, out = add_tile(query, keys, values, mask[None, :], scale, maximum, total, out)
    # A sequence without slots has sum 0, and gets zeros.
    out = out / tl.where(total > 0, total, 1.0)[:, None]
    tl.store(out_ptr + query_offs, out.to(out_ptr.dtype.element_ty), mask=query_mask)
