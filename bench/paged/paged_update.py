"""In-place replacement in paged storage: EQUIP where slots lie in blocks (its section 4.4).

Block storage has shape (num_blocks, block_size, kv_heads) or (num_blocks, block_size, kv_heads, dim).
A block table (batch, max_blocks) int32 names the physical block of each logical one, `NO_BLOCK` where there is none;
logical slot s of a sequence is offset s % block_size of its logical block s // block_size.
"""

import torch
from torch import Tensor

NO_BLOCK = -1  # entry of a block table without a physical block


def replace_paged_slots_(blocks: Tensor, block_tables: Tensor, slots: Tensor, new: Tensor) -> Tensor:
    """Overwrite logical slots with `new`, each at its (physical block, offset); nothing else is touched.

    Args:
        blocks: block storage, contiguous, changed in place.
        block_tables: (batch, max_blocks) int32.
        slots: distinct logical slots, int64: (batch, n), the same for all heads, or (batch, kv_heads, n).
        new: (batch, kv_heads, n) or (batch, kv_heads, n, dim), dtype of `blocks`.

    Returns:
        `blocks`.

    Raises:
        IndexError: a slot lies in a block that the table does not name.
    """
    block_size, num_kv_heads = blocks.shape[1:3]
    physical = block_tables.long().gather(1, slots.flatten(1) // block_size).view_as(slots)
    row = physical * block_size + slots % block_size
    new = new.transpose(1, 2)
    if slots.dim() == 2:
        # One row of storage holds all heads of a slot. NO_BLOCK gives a negative row, which index_copy_ refuses.
        blocks.view(-1, *blocks.shape[2:]).index_copy_(0, row.flatten(), new.flatten(0, 1))
        return blocks
    heads = torch.arange(num_kv_heads, device=slots.device)
    row = row.transpose(1, 2) * num_kv_heads + heads
    blocks.view(-1, *blocks.shape[3:]).index_copy_(0, row.flatten(), new.flatten(0, 2))
    return blocks


def replace_paged_slots_ref(blocks: Tensor, block_tables: Tensor, slots: Tensor, new: Tensor) -> Tensor:
    """Reference for `replace_paged_slots_`: new storage, head by head and slot by slot."""
    out, block_size = blocks.clone(), blocks.shape[1]
    for batch, table in enumerate(block_tables.tolist()):
        for head in range(blocks.shape[2]):
            own = slots[batch] if slots.dim() == 2 else slots[batch, head]
            for i, slot in enumerate(own.tolist()):
                out[table[slot // block_size], slot % block_size, head] = new[batch, head, i]
    return out


def gather_blocks(blocks: Tensor, block_tables: Tensor) -> Tensor:
    """Copy the blocks of each sequence into logical order.

    Returns:
        (batch, kv_heads, max_blocks * block_size) or (batch, kv_heads, max_blocks * block_size, dim);
        what the table does not name holds the contents of some other block.
    """
    batch, max_blocks = block_tables.shape
    rows = blocks.index_select(0, block_tables.clamp_min(0).flatten())
    return rows.view(batch, max_blocks * blocks.shape[1], *blocks.shape[2:]).transpose(1, 2)
