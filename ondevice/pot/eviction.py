"""Eviction from a full pot while it decodes: EQUIP's in-place replacement, one small class a rule.
Each has its row in `config.DECODE_POLICIES`.

`make_room` chooses victims, which the next forward pass overwrites where they lie; nothing is shifted. Layers may hold
different numbers of tokens: one that has room takes the next token into a free slot and gives up nothing.
Reading evicts in bulk instead: see `distill`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from ondevice.pot import numbering
from ondevice.pot.memory_pot import MemoryPot, Victims
from ondevice.pot.ring import Rings, Save

# Positions may run to so many times the capacity before they are numbered again. Each count rotates all keys once,
# so the rarer the cheaper; but the angles of large positions lose digits.
_FRAME = 4


def save_nothing(victims: Victims | None) -> None:
    pass


class Eviction(Protocol):
    """A rule for decoding, made for a `LongAnswer`."""

    def make_room(self) -> None:
        """Choose slots for the next token to overwrite, where layers lack room; raises PotError if none may go."""


@dataclass(frozen=True, slots=True)
class LongAnswer:
    """An answer that may be longer than the room left, as a rule sees it once the question has been read.

    Attributes:
        pot: that decodes.
        max_positions: that the model was trained on; they are numbered again before they reach it.
        mass: attention of the question, for each layer (batch, kv_heads, num_cached); empty where it decides
            nothing.
        num_document: slots of each layer that were used before the question came; empty as `mass`.
        save: for an undo log.
    """

    pot: MemoryPot
    max_positions: int
    mass: Sequence[Tensor] = ()
    num_document: Sequence[int] = ()
    save: Save = save_nothing


class SinkRecent:
    """Sinks and the most recent tokens (StreamingLLM, arXiv 2309.17453), without shifting anything.

    By its definition the cached tokens have positions 0..n-1 at every step, so that all of them change. Attention
    sees differences only: the query and the recent tokens keep theirs if both count on, and it is enough to rotate
    the sinks again, which stay as far from the query as they were. They are in the first slots of every head.
    """

    def __init__(self, answer: LongAnswer) -> None:
        pot, num_sinks = answer.pot, answer.pot.num_protected
        self._pot, self._num_sinks, self._save = pot, num_sinks, answer.save
        self._rings, self._is_saved = Rings(pot, self._oldest_first, answer.save), num_sinks == 0
        # What was read may stand far out already: numbering again brings positions back to where they are now.
        self._most = max(_FRAME * pot.shape.capacity, max(pot.next_position) + pot.shape.capacity)

    def make_room(self) -> None:
        pot = self._pot
        pot.victims = self._rings.take()
        if not self._is_saved:
            self._save(slice(0, self._num_sinks))
            self._is_saved = True
        if max(pot.next_position) >= self._most:
            self._renumber()
        # The sinks follow the query.
        sinks = slice(0, self._num_sinks)
        for layers in self._overwritten_layers() if self._num_sinks else ():
            pot.positions[layers, ..., sinks] += 1
            numbering.rotate_slots_(pot, layers, sinks)

    def _oldest_first(self, layer: int) -> Tensor:
        """All slots after the sinks. What replaces the oldest is the newest, so their order holds for ever."""
        first, used = self._num_sinks, self._pot.num_cached[layer]
        return self._pot.positions[layer, ..., first:used].argsort(dim=-1) + first

    def _overwritten_layers(self) -> list[slice]:
        """The layers that give up slots for the next tokens: all at once where they all do."""
        victims = self._pot.victims
        if isinstance(victims, list) and any(slots is None for slots in victims):
            return [slice(layer, layer + 1) for layer, slots in enumerate(victims) if slots is not None]
        return [] if victims is None else [self._pot.shape.layers]

    def _renumber(self) -> None:
        """Lower all positions alike, which changes no difference, and rotate all keys for it."""
        pot = self._pot
        offset = min(int(pot.positions[layer, ..., :used].min()) for layer, used in enumerate(pot.num_cached))
        if offset == 0:
            return  # the sinks of a layer that still has room stand where they stood
        self._save(None)
        for layer, num_cached in enumerate(pot.num_cached):
            pot.positions[layer, ..., :num_cached] -= offset
            pot.next_position[layer] -= offset
        numbering.refresh_keys_(pot, pot.shape.layers)


class FixedOrder:
    """A fixed order per head, what the question attends to least first; after the last slot it begins again, with the
    oldest of the new tokens."""

    def __init__(self, answer: LongAnswer) -> None:
        self._rings = Rings(answer.pot, _least_attended(answer).__getitem__, answer.save)
        self._answer = replace(answer, mass=())  # whose memory is needed no more

    def make_room(self) -> None:
        answer = self._answer
        answer.pot.victims = self._rings.take()
        keep_in_window(answer.pot, answer.max_positions, answer.save)


def _least_attended(answer: LongAnswer) -> list[Tensor]:
    """The slots that may go, by the question's attention, the least first: (batch, kv_heads, num_open) int64."""
    order = []
    for layer_mass, positions, used in zip(answer.mass, answer.pot.positions, answer.num_document, strict=True):
        score = layer_mass[..., :used].masked_fill(positions[..., :used] < answer.pot.num_protected, torch.inf)
        # Every head keeps its prompt; the same number of slots is open in all of them.
        num_open = int((score < torch.inf).sum(dim=-1).min())
        order.append(score.argsort(dim=-1)[..., :num_open])
    return order


def keep_in_window(pot: MemoryPot, max_positions: int, save: Save) -> None:
    """Number positions again before one more runs past what the model was trained on."""
    if max(pot.next_position) < max_positions or max(pot.num_cached) >= max_positions:
        return
    save(None)
    numbering.number_in_order_(pot)
