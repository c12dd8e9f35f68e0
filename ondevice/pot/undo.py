"""The undo log of a question and its answer: it takes back all that they change in the pot, bit for bit."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ondevice.kernels.pot_update import replace_slots_, take_slots
from ondevice.machine.process import trim_heap
from ondevice.pot.memory_pot import MemoryPot, Victims

_LARGE = 64 << 20  # bytes


class _Saved(NamedTuple):
    """Former contents of `slots` (batch, kv_heads, n) int64 of a layer, buffer by buffer."""

    layer: int
    slots: Tensor
    contents: list[Tensor]


class UndoLog:
    """Remembers the state of a pot; `rewind` brings it back.

    Tokens that go into free slots need no entry. An eviction rule calls `save` before anything else is overwritten;
    what is saved is a copy, so the log grows with the document slots that an answer overwrites, and no further.

    Args:
        pot: the pot about to be changed.

    Attributes:
        peak_bytes: the most that its copies took.
    """

    def __init__(self, pot: MemoryPot) -> None:
        self._pot = pot
        self._num_cached = list(pot.num_cached)
        self._next_position = list(pot.next_position)
        self._num_ranked = list(pot.num_ranked)
        self._is_uniform = pot.is_uniform
        self._native = pot.native.snapshot()
        self._entries: list[list[_Saved]] = []
        self._has_all = False
        self.peak_bytes = self._native_bytes = sum(part.nbytes for part in self._native.contents)

    def save(self, victims: Victims | None) -> None:
        """Copy slots that held something when this log was made; None: all of them."""
        if self._has_all:
            return
        self._has_all = victims is None
        entry = []
        for layer in range(len(self._pot.num_cached)):
            slots = self._slots(victims, layer)
            if slots is not None:
                contents = [take_slots(buffer, slots) for buffer in self._pot.layer_buffers(layer)]
                entry.append(_Saved(layer, slots, contents))
        self._entries.append(entry)
        self.peak_bytes = max(self.peak_bytes, self._native_bytes + self._kept_bytes)

    @property
    def is_empty(self) -> bool:
        """True if nothing was overwritten since this log was made, or is again as it was."""
        return not self._entries

    def keep(self, num_tokens: int) -> None:
        """Take back all but the first tokens that came since this log was made; all lie in slots that were free."""
        assert self.is_empty
        num_cached = [used + num_tokens for used in self._num_cached]
        self._pot.rewind_to_(num_cached, [at + num_tokens for at in self._next_position])

    def rewind(self) -> None:
        """Put the pot back to the state it had when this log was made."""
        pot = self._pot
        pot.victims = None
        for entry in reversed(self._entries):
            for layer, slots, contents in entry:
                for buffer, content in zip(pot.layer_buffers(layer), contents, strict=True):
                    replace_slots_(buffer, slots, content)
        is_large = self._kept_bytes >= _LARGE
        self._entries, self._has_all = [], False
        if is_large and pot.positions.device.type == "cpu":
            trim_heap()  # or the next log of this size may find no place among the pieces of this one
        pot.rewind_to_(self._num_cached, self._next_position, self._native)
        pot.num_ranked = list(self._num_ranked)
        pot.is_uniform = self._is_uniform

    @property
    def _kept_bytes(self) -> int:
        return sum(part.nbytes for entry in self._entries for saved in entry for part in saved.contents)

    def _slots(self, victims: Victims | None, layer: int) -> Tensor | None:
        """The slots of one layer, (batch, kv_heads, n) int64; None: it gives up none."""
        shape, device = self._pot.shape, self._pot.positions.device
        if victims is None:
            victims = slice(0, self._num_cached[layer])
        if isinstance(victims, slice):
            slots = torch.arange(victims.start, victims.stop, device=device)
            return slots.expand(shape.batch, shape.kv_size[1], -1)
        return victims[layer]
