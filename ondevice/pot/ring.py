"""The slots of a pot in a fixed order, taken again and again; each is saved for an undo log before it goes first.

A layer with free slots gives up nothing: its turn comes once it is full.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ondevice.errors import PotError
from ondevice.pot.memory_pot import MemoryPot, Victims

_SAVED_AT_ONCE = 64  # one copy for many tokens instead of one for each

# Takes the slots that are about to be lost; None: any of them may be.
Save = Callable[[Victims | None], None]


class Rings:
    """A ring for all layers that ran full at the same token; usually one for all layers of the pot.

    Args:
        pot: that decodes.
        order: of a layer that is full now: (batch, num_kv_heads, num_open) int64, what goes first.
        save: as for `Ring`.
    """

    def __init__(self, pot: MemoryPot, order: Callable[[int], Tensor], save: Save) -> None:
        self._pot, self._order, self._save = pot, order, save
        self._rings: list[Ring] = []
        self._waiting = list(range(pot.shape.num_layers))  # layers that had room so far

    def take(self, num_tokens: int) -> Victims | None:
        """The next slots of every layer that has no room for so many tokens, or had none before; None: all have."""
        if full := [layer for layer in self._waiting if self._pot.num_free_in(layer) < num_tokens]:
            layers = range(self._pot.shape.num_layers)
            self._rings.append(Ring([self._order(layer) if layer in full else None for layer in layers], self._save))
            self._waiting = [layer for layer in self._waiting if layer not in full]
        taken = [ring.take(num_tokens) for ring in self._rings]
        if len(taken) < 2:
            return taken[0] if taken else None
        by_layer = zip(*(victims for victims in taken if isinstance(victims, list)), strict=True)
        return [next((slots for slots in of_rings if slots is not None), None) for of_rings in by_layer]


class Ring:
    """Takes slots in a given order, again and again; each is saved before it goes for the first time.

    Args:
        order: for each layer (batch, num_kv_heads, num_open) int64; None: not of this ring.
        save: called with some slots at once, ahead of their time.
    """

    def __init__(self, order: Sequence[Tensor | None], save: Save) -> None:
        self._order, self._save = order, save
        own = [layer for layer in order if layer is not None]
        # Layers that hold fewer tokens, because their capacity is lower, come round sooner.
        self._fewest, self._num_open = min(sizes := [layer.shape[-1] for layer in own]), max(sizes)
        self._turn = self._num_saved = 0
        first = own[0][:1, :1]
        are_same = (layer.shape == own[0].shape and bool((layer == first).all()) for layer in own)
        is_shared = len(own) == len(order) and all(are_same)
        run = torch.arange(self._num_open, device=first.device) + first[..., :1]
        # One run of slots, the same in every head: a slice says it all.
        self._first_slot = int(first[0, 0, 0]) if is_shared and self._num_open and torch.equal(run, first) else None

    def take(self, num_tokens: int) -> Victims:
        check_open(num_tokens, self._fewest)
        while self._num_saved < min(self._turn + num_tokens, self._num_open):
            stop = min(self._num_saved + _SAVED_AT_ONCE, self._num_open)
            self._save(self._slots(self._num_saved, stop))
            self._num_saved = stop
        start = self._turn
        self._turn += num_tokens
        return self._slots(start, start + num_tokens)

    def _slots(self, start: int, stop: int) -> Victims:
        if self._first_slot is not None:
            first = start % self._num_open
            if first + stop - start <= self._num_open:
                return slice(self._first_slot + first, self._first_slot + first + stop - start)
        return [None if order is None else _cyclic(order, start, stop) for order in self._order]


def _cyclic(order: Tensor, start: int, stop: int) -> Tensor:
    """order[..., start:stop], beginning again after its end."""
    size = order.shape[-1]
    first = start % size
    if first + stop - start <= size:
        return order[..., first : first + stop - start]
    return order[..., torch.arange(start, stop, device=order.device) % size]


def check_open(num_tokens: int, num_open: int) -> None:
    if num_tokens > num_open:
        what = f"{num_tokens} new tokens need as many slots, and only {max(num_open, 0)} of the pot may be overwritten"
        raise PotError(what, fix="Raise {pot.capacity}, or lower {pot.num_sink_tokens}.")
