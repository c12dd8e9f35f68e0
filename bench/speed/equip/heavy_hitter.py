"""The rule of H2O in a memory pot, which overwrites what received the least attention."""

from __future__ import annotations

import torch
from torch import Tensor

from ondevice.pot.eviction import keep_in_window, save_nothing
from ondevice.pot.memory_pot import MemoryPot
from ondevice.pot.ring import Save, check_open


class HeavyHitter:
    """The slots with the least attention so far go, head by head; sinks and recent tokens stay (H2O, 2306.14048).

    Args:
        pot: the pot that decodes; its slots 0..num_sinks-1 hold the sinks of every head.
        num_sinks, num_recent: slots never evicted, newest tokens never evicted.
        max_positions, save: as for `LongAnswer`.
        mass: attention received so far, for each layer (batch, kv_heads, num_cached); None: not known.
    """

    def __init__(
        self,
        pot: MemoryPot,
        num_sinks: int,
        num_recent: int,
        *,
        max_positions: int,
        mass: list[Tensor] | None = None,
        save: Save = save_nothing,
    ) -> None:
        self._pot, self._num_sinks, self._num_recent = pot, num_sinks, num_recent
        self._max_positions, self._save, self._is_saved = max_positions, save, False
        self._scores = torch.zeros_like(pot.importance)
        if mass is not None:
            self.observe(mass)
        self._scores[..., :num_sinks] = torch.inf

    def make_room(self) -> None:
        pot = self._pot
        full = {layer for layer in range(pot.shape.num_layers) if not pot.num_free_in(layer)}
        if full:
            check_open(min(pot.num_cached[layer] for layer in full) - self._num_sinks - self._num_recent)
            if not self._is_saved:
                self._save(None)
                self._is_saved = True
            pot.victims = [self._least(layer) if layer in full else None for layer in range(len(self._scores))]
        keep_in_window(pot, self._max_positions, self._save)

    def _least(self, layer: int) -> Tensor:
        """The slots of a layer that go, (batch, kv_heads, 1) int64."""
        pot, used = self._pot, self._pot.num_cached[layer]
        is_recent = pot.positions[layer, ..., :used] >= pot.next_position[layer] - self._num_recent
        open_scores = self._scores[layer, ..., :used].masked_fill(is_recent, torch.inf)
        victims = open_scores.topk(1, dim=-1, largest=False).indices
        self._scores[layer].scatter_(-1, victims, 0.0)  # what a new token receives is counted from 0
        return victims

    def observe(self, mass: list[Tensor]) -> None:
        for scores, layer_mass in zip(self._scores, mass, strict=True):
            scores[..., : layer_mass.shape[-1]] += layer_mass
