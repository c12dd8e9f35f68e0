"""The two Triton kernels of attention of one token: one reads blocks, one merges what several programs have read."""

# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl
from ondevice.kernels.triton.shared import add_tile, load_query, store_part


@triton.jit(do_not_specialize_on_alignment=["length_ptr"])  # they lie in one table for all layers
def read_kernel(  # type: ignore[no-untyped-def]
    query_ptr,
    key_ptr,
    value_ptr,
    out_ptr,
    partial_ptr,
    statistic_ptr,
    length_ptr,
    scale,
    batch_stride,
    head_stride,
    slot_stride,
    SPLITS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    GROUPS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PADDED_GROUPS: tl.constexpr,
    PADDED_DIM: tl.constexpr,
    TILE: tl.constexpr,
    IN_FLOAT32: tl.constexpr,
):
    """out = softmax(scale * q K^T) V for the query heads of one KV head, in blocks of slots.

    Split s of S reads the blocks s, s + S, ... from the last one on.
    """
    split = tl.program_id(0)
    kv_head = tl.program_id(1)
    batch = tl.program_id(2)
    num_slots = tl.load(length_ptr)
    num_steps = (num_slots + BLOCK_SIZE - 1) // BLOCK_SIZE
    dim = tl.arange(0, PADDED_DIM)
    query, query_offs, query_mask = load_query(
        query_ptr, batch, kv_head, tl.num_programs(1), GROUPS, HEAD_DIM, PADDED_GROUPS, PADDED_DIM, IN_FLOAT32
    )
    first = batch.to(tl.int64) * batch_stride + kv_head.to(tl.int64) * head_stride

    maximum = tl.full([PADDED_GROUPS], float("-inf"), dtype=tl.float32)
    total = tl.zeros([PADDED_GROUPS], dtype=tl.float32)
    out = tl.zeros([PADDED_GROUPS, PADDED_DIM], dtype=tl.float32)
    num_read = (num_steps - split + SPLITS - 1) // SPLITS
    # One loop over all tiles, which the compiler can read ahead in.
    num_tiles: tl.constexpr = (BLOCK_SIZE + TILE - 1) // TILE
    dims = (dim < HEAD_DIM)[None, :]
    for i in range(0, num_read * num_tiles):
        block = num_steps - 1 - split - (i // num_tiles) * SPLITS
        within = (i % num_tiles) * TILE + tl.arange(0, TILE)
        slot = block * BLOCK_SIZE + within
        mask = (slot < num_slots) & (within < BLOCK_SIZE)
        # 64 bits: large storage has more numbers than 32 bits count.
        offs = first + slot[:, None].to(tl.int64) * slot_stride + dim[None, :]
        keys = tl.load(key_ptr + offs, mask=mask[:, None] & dims, other=0.0)
        values = tl.load(value_ptr + offs, mask=mask[:, None] & dims, other=0.0)
        if IN_FLOAT32:
            keys = keys.to(tl.float32)
            values = values.to(tl.float32)
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


@triton.jit
def merge_kernel(  # type: ignore[no-untyped-def]
    partial_ptr,
    statistic_ptr,
    out_ptr,
    SPLITS: tl.constexpr,
    PADDED_SPLITS: tl.constexpr,
    ROWS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PADDED_DIM: tl.constexpr,
):
    """out = sum_s exp(m_s - m) o_s / sum_s exp(m_s - m) l_s for one row, with m = max m_s."""
    place = tl.program_id(0)
    row = tl.program_id(1)
    split = tl.arange(0, PADDED_SPLITS)
    dim = tl.arange(0, PADDED_DIM)
    is_split = split < SPLITS
    part_row = (place * SPLITS + split) * ROWS + row
    maxima = tl.load(statistic_ptr + part_row * 2, mask=is_split, other=float("-inf"))
    totals = tl.load(statistic_ptr + part_row * 2 + 1, mask=is_split, other=0.0)
    parts_mask = is_split[:, None] & (dim < HEAD_DIM)[None, :]
    parts = tl.load(partial_ptr + part_row[:, None] * HEAD_DIM + dim[None, :], mask=parts_mask, other=0.0)
    maximum = tl.max(maxima, axis=0)
    weights = tl.exp(maxima - tl.where(maximum == float("-inf"), 0.0, maximum))
    total = tl.sum(weights * totals, axis=0)
    out = tl.sum(weights[:, None] * parts, axis=0) / tl.where(total > 0, total, 1.0)
    out_offs = (place * ROWS + row) * HEAD_DIM + dim
    tl.store(out_ptr + out_offs, out.to(out_ptr.dtype.element_ty), mask=dim < HEAD_DIM)
