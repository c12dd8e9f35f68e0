"""The two Triton kernels of `decode_attention`: one reads blocks, one merges what several programs have read.

`read_kernel` says how splits end each other.
"""

# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl
from ondevice.kernels.triton.shared import add_tile


@triton.jit
def _read_tile(  # type: ignore[no-untyped-def]  # the arguments have the types of the call
    block,
    start,
    query,
    key_ptr,
    value_ptr,
    first,
    slot_stride,
    scale,
    num_slots,
    maximum,
    total,
    out,
    BLOCK_SIZE: tl.constexpr,
    TILE: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PADDED_DIM: tl.constexpr,
    IN_FLOAT32: tl.constexpr,
):
    """Add TILE slots of a block to the online softmax."""
    dim = tl.arange(0, PADDED_DIM)
    within = start + tl.arange(0, TILE)
    slot = block * BLOCK_SIZE + within
    mask = (slot < num_slots) & (within < BLOCK_SIZE)
    # 64 bits: large storage has more numbers than 32 bits count.
    offs = first + slot[:, None].to(tl.int64) * slot_stride + dim[None, :]
    tile_mask = mask[:, None] & (dim < HEAD_DIM)[None, :]
    keys = tl.load(key_ptr + offs, mask=tile_mask, other=0.0)
    values = tl.load(value_ptr + offs, mask=tile_mask, other=0.0)
    if IN_FLOAT32:
        keys = keys.to(tl.float32)
        values = values.to(tl.float32)
    return add_tile(query, keys, values, mask[None, :], scale, maximum, total, out)


# The arguments named change from call to call; a kernel for each of their values would be compiled for nothing.
@triton.jit(do_not_specialize=["num_slots", "num_steps", "patience"])
def read_kernel(  # type: ignore[no-untyped-def]
    query_ptr,
    key_ptr,
    value_ptr,
    order_ptr,
    out_ptr,
    partial_ptr,
    statistic_ptr,
    count_ptr,
    flag_ptr,
    progress_ptr,
    tau_ptr,
    length_ptr,
    scale,
    phi,
    patience,
    num_slots,
    num_steps,
    batch_stride,
    head_stride,
    slot_stride,
    order_batch_stride,
    order_head_stride,
    SPLITS: tl.constexpr,
    PADDED_PARTS: tl.constexpr,
    THREADS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    ROWS: tl.constexpr,
    PADDED_ROWS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PADDED_DIM: tl.constexpr,
    TILE: tl.constexpr,
    IN_FLOAT32: tl.constexpr,
    HAS_ORDER: tl.constexpr,
    HAS_LENGTH: tl.constexpr,
    DETECTS: tl.constexpr,
    IS_RELATIVE: tl.constexpr,
):
    """out = softmax(scale * q K^T) V for the rows (query heads) of one KV head, in blocks of slots.

    Split s of S reads the blocks order[s], order[s + S], ...; with S = 1 that is ART's algorithm 1 as it stands. With
    more, no split knows the output o = sum_r w_r o_r (w_r: the share of the softmax mass that split r has seen), but
    each can bound what its block did to it. A block whose share of all mass is d changes o by
    w_s (o_s' - o_s) + d (o_s - o), so by no more than w_s |o_s' - o_s| + d ((1 - w_s) |o_s| + sum_{r != s} w_r |o_r|).
    For this every split writes the logarithm of its mass and the norm of its output down after each block. What the
    others wrote may be older than what they know: then w_s and d come out too large, and reading ends later.
    The norm of o is taken as the root of sum_r (w_r |o_r|)^2, which it is where parts are unrelated, and larger where
    they agree; one minus the cosine shrinks with the square of the part's share in that norm.

    A split keeps its flag up as long as its last `patience` blocks were stable, and ends when all S flags are up; one
    without blocks left leaves its flag up. All, not most of them: a majority would cut
    off the very split that has just met a block that matters, and as all end at about the same depth of the order,
    the mass of each remains that of its share of the order's beginning. The caller divides the patience by S: that
    many stable blocks in a row in every split are at least as many of the order in a row. No split ever waits for
    another, so that nothing depends on which of them run at the same time.

    What others write is read as tensors with at least a number for every thread, and then reduced: a scalar would be
    read by every thread on its own, one before and one after it was written, and threads of one program would go
    different ways.
    """
    split = tl.program_id(0)
    kv_head = tl.program_id(1)
    batch = tl.program_id(2)
    place = batch * tl.num_programs(1) + kv_head
    if HAS_LENGTH:
        num_slots = tl.load(length_ptr)
        num_steps = (num_slots + BLOCK_SIZE - 1) // BLOCK_SIZE
    rows = tl.arange(0, PADDED_ROWS)
    dim = tl.arange(0, PADDED_DIM)
    row_offs = (place * ROWS + rows)[:, None] * HEAD_DIM + dim[None, :]
    row_mask = (rows < ROWS)[:, None] & (dim < HEAD_DIM)[None, :]
    query = tl.load(query_ptr + row_offs, mask=row_mask, other=0.0)
    if IN_FLOAT32:
        query = query.to(tl.float32)
    order_ptr += batch * order_batch_stride + kv_head * order_head_stride
    first = batch.to(tl.int64) * batch_stride + kv_head.to(tl.int64) * head_stride

    maximum = tl.full([PADDED_ROWS], float("-inf"), dtype=tl.float32)
    total = tl.zeros([PADDED_ROWS], dtype=tl.float32)
    out = tl.zeros([PADDED_ROWS, PADDED_DIM], dtype=tl.float32)
    num_read = (num_steps - split + SPLITS - 1) // SPLITS
    if DETECTS:
        flag_ptr += place * SPLITS
        flag = tl.arange(0, THREADS)
        is_other = (flag < SPLITS) & (flag != split)
        progress_ptr += place * SPLITS * ROWS * 2
        mine = progress_ptr + (split * ROWS + rows) * 2
        part = tl.arange(0, PADDED_PARTS)
        theirs = progress_ptr + (part[:, None] * ROWS + rows[None, :]) * 2
        is_theirs = ((part < SPLITS) & (part != split))[:, None] & (rows < ROWS)[None, :]
        # After the block before: the partial output, its norm, and the logarithm of its mass.
        before = out
        old_norm = total
        mass = maximum
        step = split
        num_stable = split * 0
        is_raised = split * 0
        num_raised = split * 0
        while (step < num_steps) & (num_raised < SPLITS):
            if SPLITS > 1:
                # Asked for before the block is read and needed after it, so that nothing waits for the answer.
                their_flags = tl.load(flag_ptr + flag, mask=is_other, other=0, volatile=True)
                their_mass = tl.load(theirs, mask=is_theirs, other=float("-inf"), volatile=True)
                # Minus infinity: not written to yet.
                their_norm = tl.maximum(tl.load(theirs + 1, mask=is_theirs, other=0.0, volatile=True), 0.0)
            block = num_steps - 1 - step
            if HAS_ORDER:
                block = tl.load(order_ptr + step)
            for start in range(0, BLOCK_SIZE, TILE):
                maximum, total, out = _read_tile(
                    block,
                    start,
                    query,
                    key_ptr,
                    value_ptr,
                    first,
                    slot_stride,
                    scale,
                    num_slots,
                    maximum,
                    total,
                    out,
                    BLOCK_SIZE,
                    TILE,
                    HEAD_DIM,
                    PADDED_DIM,
                    IN_FLOAT32,
                )
            now = out / tl.where(total > 0, total, 1.0)[:, None]
            moved = tl.sqrt(tl.sum((now - before) * (now - before), axis=1))
            norm = tl.sqrt(tl.sum(now * now, axis=1))
            product = norm * old_norm
            cosine = tl.sum(now * before, axis=1) / tl.where(product > 0, product, 1.0)
            turned = tl.where(product > 0, 1.0 - cosine, tl.where(moved > 0, 1.0, 0.0))
            before = now
            old_norm = norm
            if SPLITS > 1:
                new_mass = tl.where(total > 0, maximum + tl.log(tl.where(total > 0, total, 1.0)), float("-inf"))
                tl.store(mine, new_mass, mask=rows < ROWS)
                tl.store(mine + 1, norm, mask=rows < ROWS)
                base = tl.maximum(new_mass, tl.max(their_mass, axis=0))
                base = tl.where(base == float("-inf"), 0.0, base)
                their_share = tl.exp(their_mass - base[None, :])
                share = tl.exp(new_mass - base)
                all_mass = share + tl.sum(their_share, axis=0)
                all_mass = tl.where(all_mass > 0, all_mass, 1.0)
                share = share / all_mass
                their_part = their_share / all_mass[None, :] * their_norm
                block_share = share - tl.exp(mass - base) / all_mass
                my_part = share * norm
                moved = share * moved + block_share * ((1.0 - share) * norm + tl.sum(their_part, axis=0))
                norm = tl.sqrt(my_part * my_part + tl.sum(their_part * their_part, axis=0))
                ratio = my_part / tl.where(norm > 0, norm, 1.0)
                turned = turned * ratio * ratio
                mass = new_mass
            tau = tl.load(tau_ptr + kv_head)
            limit = tau + norm * 0.0
            if IS_RELATIVE:
                limit = tau * norm
            is_stable = ((moved < limit) & (turned < phi)) | (rows >= ROWS)
            # The first block of a split has nothing to be compared with.
            all_stable = (tl.min(is_stable.to(tl.int32), axis=0) > 0) & (step >= SPLITS)
            num_stable = tl.where(all_stable, num_stable + 1, 0)
            is_converged = (num_stable >= patience).to(tl.int32)
            step += SPLITS
            num_raised = is_converged
            if SPLITS > 1:
                if is_converged != is_raised:
                    tl.store(flag_ptr + split, is_converged)
                is_raised = is_converged
                num_raised = is_converged * (tl.sum(their_flags, axis=0) + 1)
        num_read = (step - split) // SPLITS
        if step < num_steps:
            # It ended early: block 0, the sinks, is read by the split that has it before it.
            num_first = ((num_steps - 1) % SPLITS == split).to(tl.int32)
            if HAS_ORDER:
                num_first = split * 0
                for ahead in range(step, num_steps, SPLITS * 64):
                    steps = ahead + tl.arange(0, 64) * SPLITS
                    blocks = tl.load(order_ptr + steps, mask=steps < num_steps, other=1)
                    num_first += tl.sum((blocks == 0).to(tl.int32), axis=0)
            if num_first > 0:
                for start in range(0, BLOCK_SIZE, TILE):
                    maximum, total, out = _read_tile(
                        0,
                        start,
                        query,
                        key_ptr,
                        value_ptr,
                        first,
                        slot_stride,
                        scale,
                        num_slots,
                        maximum,
                        total,
                        out,
                        BLOCK_SIZE,
                        TILE,
                        HEAD_DIM,
                        PADDED_DIM,
                        IN_FLOAT32,
                    )
                num_read += 1
        elif is_raised == 0:
            tl.store(flag_ptr + split, 1)
    else:
        # One loop over all tiles, which the compiler can read ahead in.
        num_tiles: tl.constexpr = (BLOCK_SIZE + TILE - 1) // TILE
        for i in range(0, num_read * num_tiles):
            step = split + (i // num_tiles) * SPLITS
            block = num_steps - 1 - step
            if HAS_ORDER:
                block = tl.load(order_ptr + step)
            maximum, total, out = _read_tile(
                block,
                (i % num_tiles) * TILE,
                query,
                key_ptr,
                value_ptr,
                first,
                slot_stride,
                scale,
                num_slots,
                maximum,
                total,
                out,
                BLOCK_SIZE,
                TILE,
                HEAD_DIM,
                PADDED_DIM,
                IN_FLOAT32,
            )
    part = place * SPLITS + split
    tl.store(count_ptr + part, num_read)
    if SPLITS == 1:
        out = out / tl.where(total > 0, total, 1.0)[:, None]
        tl.store(out_ptr + row_offs, out.to(out_ptr.dtype.element_ty), mask=row_mask)
    else:
        part_rows = part * ROWS + rows
        tl.store(statistic_ptr + part_rows * 2, maximum, mask=rows < ROWS)
        tl.store(statistic_ptr + part_rows * 2 + 1, total, mask=rows < ROWS)
        tl.store(partial_ptr + part_rows[:, None] * HEAD_DIM + dim[None, :], out, mask=row_mask)


@triton.jit
def merge_kernel(  # type: ignore[no-untyped-def]
    partial_ptr,
    statistic_ptr,
    count_ptr,
    out_ptr,
    blocks_read_ptr,
    flag_ptr,
    progress_ptr,
    SPLITS: tl.constexpr,
    PADDED_SPLITS: tl.constexpr,
    ROWS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PADDED_DIM: tl.constexpr,
    DETECTS: tl.constexpr,
):
    """out = sum_s exp(m_s - m) o_s / sum_s exp(m_s - m) l_s for one row, with m = max m_s.

    It also resets the flags between splits for the next call, and adds up the blocks read.
    """
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
    if DETECTS:
        tl.store(progress_ptr + part_row * 2, tl.full([PADDED_SPLITS], float("-inf"), tl.float32), mask=is_split)
    if row == 0:
        counts = tl.load(count_ptr + place * SPLITS + split, mask=is_split, other=0)
        tl.store(blocks_read_ptr + place, tl.sum(counts, axis=0))
        if DETECTS:
            tl.store(flag_ptr + place * SPLITS + split, tl.zeros([PADDED_SPLITS], tl.int32), mask=is_split)
