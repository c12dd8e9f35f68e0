"""Ownership of physical blocks: one free list, and a block table for each sequence of a batch.

It knows nothing of what the blocks hold.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from ondevice.errors import PotError
from ondevice_bench.paged.paged_update import NO_BLOCK


class BlockTables:
    """Block tables of a batch, filled from one free list.

    Args:
        batch: sequences.
        max_blocks: entries of each table.
        num_blocks: physical blocks that all sequences share.
        block_size: slots of a block.
        seed: order of the free list. It starts shuffled, as it is after some use, so that nothing can come to
            depend on neighbouring blocks.

    Attributes:
        table: (batch, max_blocks) int32, `NO_BLOCK` where there is no block; changed in place only.
        owned: for each sequence its physical blocks in logical order.
    """

    def __init__(
        self, batch: int, max_blocks: int, num_blocks: int, block_size: int, *, device: torch.device | str, seed: int
    ) -> None:
        self.block_size = block_size
        self.num_blocks = num_blocks
        self.table: Tensor = torch.full((batch, max_blocks), NO_BLOCK, dtype=torch.int32, device=device)
        self.owned: list[list[int]] = [[] for _ in range(batch)]
        self._free: list[int] = torch.randperm(num_blocks, generator=torch.Generator().manual_seed(seed)).tolist()

    @property
    def num_free(self) -> int:
        """Blocks that no sequence owns."""
        return len(self._free)

    def reserve(self, num_slots: Mapping[int, int]) -> None:
        """Give sequences the blocks they lack to hold so many slots: all of them, or none.

        Args:
            num_slots: for each sequence concerned (its row in the batch) the slots it has to hold.

        Raises:
            PotError: the free list or a table is too short; nothing is changed.
        """
        missing = {row: self._count(slots) - len(self.owned[row]) for row, slots in num_slots.items()}
        self._require_room(num_slots)
        needed = sum(max(0, count) for count in missing.values())
        if needed > self.num_free:
            raise PotError(
                f"No block is left: {needed} more are needed, and {self.num_free} of {self.num_blocks} are free",
                fix="Release a finished sequence, or allocate more blocks.",
            )
        for row, count in missing.items():
            if count <= 0:
                continue
            blocks, start = [self._free.pop() for _ in range(count)], len(self.owned[row])
            self.owned[row] += blocks
            self.table[row, start : start + count] = torch.tensor(blocks, dtype=torch.int32)

    def release(self, row: int, num_slots: int) -> list[int]:
        """Return the blocks of a sequence after its first `num_slots` slots to the free list; gives them back."""
        num_kept = self._count(num_slots)
        freed = self.owned[row][num_kept:]
        del self.owned[row][num_kept:]
        self.table[row, num_kept:] = NO_BLOCK
        self._free += freed
        return freed

    def check_integrity(self) -> None:
        """Assert that every block is either free or owned once, and that the tables say so."""
        used = [block for blocks in self.owned for block in blocks]
        assert len(set(used)) == len(used), "a block has two owners"
        assert sorted(used + self._free) == list(range(self.num_blocks)), "free and used blocks are not all blocks"
        for row, blocks in zip(self.table.tolist(), self.owned, strict=True):
            assert row == blocks + [NO_BLOCK] * (len(row) - len(blocks)), "a table differs from what is owned"

    def _require_room(self, num_slots: Mapping[int, int]) -> None:
        max_blocks = self.table.shape[1]
        if self._count(max(num_slots.values(), default=0)) > max_blocks:
            raise PotError(
                f"A sequence of {max(num_slots.values()):,} slots does not fit in its table of {max_blocks} blocks "
                f"of {self.block_size} slots",
                fix="Replace evicted slots, or allocate longer tables.",
            )

    def _count(self, num_slots: int) -> int:
        """Blocks that hold so many slots."""
        return -(-num_slots // self.block_size)
