"""What a question and its answer change in the pot, and how all of it is taken back, bit for bit.

Tokens go into free slots first. When none is left, each further token overwrites, in every head, the slot that
matters least to the question (EQUIP's in-place replacement); its old content is kept in blocks until the rewind.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ondevice.kernels.pot_update import replace_slots_, take_slots
from ondevice.pot.memory_pot import MemoryPot

_BLOCK = 64  # slots saved at once; one copy per layer and block instead of one per token


class UndoLog:
    """Remembers the state of a pot; `rewind` brings it back.

    Args:
        pot: the pot about to be changed.
        num_protected: slots at logical positions below this are never overwritten (prompt and sinks).
    """

    def __init__(self, pot: MemoryPot, num_protected: int) -> None:
        self._pot = pot
        self._num_protected = num_protected
        self._num_cached = list(pot.num_cached)
        self._next_position = list(pot.next_position)
        self._order: list[Tensor] = []
        self._saved: list[list[tuple[Tensor, list[Tensor]]]] = []
        self.num_overwritten = 0

    def rank(self, mass: list[Tensor]) -> None:
        """Fix the order in which slots may be overwritten: least attention from the question first.

        Args:
            mass: for each layer (batch, num_kv_heads, n) with n at least the slots used at the start.
        """
        self._order = []
        for layer, used in enumerate(self._num_cached):
            score = mass[layer][:, :, :used].clone()
            score.masked_fill_(self._pot.positions[layer][:, :, :used] < self._num_protected, torch.inf)
            # Every head of the model keeps its prompt; the same number of slots is open in all of them.
            num_open = int((score < torch.inf).sum(dim=-1).min())
            self._order.append(score.argsort(dim=-1)[..., :num_open])

    def make_room(self) -> None:
        """Choose the slot of each head that the next token overwrites, and save what it holds."""
        assert self._order, "rank comes before make_room"
        turn, victims = self.num_overwritten, []
        for layer, order in enumerate(self._order):
            num_open = order.shape[-1]
            if turn < num_open and turn % _BLOCK == 0:
                self._save(layer, order[..., turn : turn + _BLOCK])
            # Behind the last document slot the oldest answer tokens are overwritten, which need no saving.
            at = turn % num_open
            victims.append(order[..., at : at + 1])
        self._pot.victims = victims
        self.num_overwritten += 1

    def rewind(self) -> None:
        """Put the pot back to the state it had when this log was made."""
        pot = self._pot
        pot.victims = None
        for saved in self._saved:
            for layer, (index, contents) in enumerate(saved):
                for buffer, content in zip(pot.layer_buffers(layer)[: len(contents)], contents, strict=True):
                    replace_slots_(buffer, index, content)
        self._saved = []
        pot.truncate(self._num_cached, self._next_position)

    def _save(self, layer: int, index: Tensor) -> None:
        if layer == 0:
            self._saved.append([])
        # keys, rotated, values, positions, origin: what a new token changes
        contents = [take_slots(buffer, index) for buffer in self._pot.layer_buffers(layer)[:5]]
        self._saved[-1].append((index, contents))
