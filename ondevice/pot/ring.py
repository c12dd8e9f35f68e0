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
    """A ring of slots for each layer, from the token on at which it ran full.

    Args:
        pot: that decodes.
        order: of a layer that is full now: (batch, kv_heads, num_open) int64, what goes first.
        save: called with some slots at once, ahead of their time.
    """

    def __init__(self, pot: MemoryPot, order: Callable[[int], Tensor], save: Save) -> None:
        self._pot, self._order, self._save = pot, order, save
        self._orders: list[Tensor | None] = [None] * len(pot.num_cached)  # None: it had room so far
        self._turns = [0] * len(pot.num_cached)
        self._run: range | None = None  # the order of all heads in all layers, where that is one run of slots

    def take(self) -> Victims | None:
        """The next slot of every layer that has no room, or had none before; None: all have."""
        layers = range(len(self._orders))
        if full := [layer for layer in layers if self._orders[layer] is None and not self._pot.num_free_in(layer)]:
            orders = [self._order(layer) for layer in full]
            check_open(min(order.shape[-1] for order in orders))
            for layer, order in zip(full, orders, strict=True):
                self._orders[layer] = order
            self._run = _one_run(orders) if len(full) == len(layers) else None
        if any(map(self._is_due, layers)):
            self._save([self._next(layer, _SAVED_AT_ONCE) if self._is_due(layer) else None for layer in layers])
        taken = [self._next(layer, 1) for layer in layers]
        victims: Victims | None = taken if any(slots is not None for slots in taken) else None
        if self._run is not None:
            slot = self._run[self._turns[0] % len(self._run)]
            victims = slice(slot, slot + 1)
        self._turns = [turn + (slots is not None) for turn, slots in zip(self._turns, taken, strict=True)]
        return victims

    def _is_due(self, layer: int) -> bool:
        """True if the slots of a layer that go next were not saved yet."""
        order, turn = self._orders[layer], self._turns[layer]
        return order is not None and turn < order.shape[-1] and turn % _SAVED_AT_ONCE == 0

    def _next(self, layer: int, count: int) -> Tensor | None:
        """The next slots of a layer, as far as they go before it begins again; None: it has room."""
        order = self._orders[layer]
        if order is None:
            return None
        first = self._turns[layer] % order.shape[-1]
        return order[..., first : first + count]


def _one_run(orders: Sequence[Tensor]) -> range | None:
    """The slots, if they follow one another in the same order in every head of all layers: a slice says it all then."""
    first, size = orders[0][:1, :1], orders[0].shape[-1]
    are_same = all(order.shape == orders[0].shape and bool((order == first).all()) for order in orders)
    run = torch.arange(size, device=first.device) + first[..., :1]
    start = int(first[0, 0, 0])
    return range(start, start + size) if are_same and torch.equal(run, first) else None


def check_open(num_open: int) -> None:
    if num_open < 1:
        what = "A new token needs a slot, and none of the pot may be overwritten"
        raise PotError(what, fix="Raise {pot.capacity}, or lower {pot.num_sink_tokens}.")
