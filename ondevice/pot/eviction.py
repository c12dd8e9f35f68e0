"""What a full pot gives up for the next token while it decodes: EQUIP's in-place replacement, one small class a rule.

`make_room` chooses victims, which the next forward pass overwrites where they lie; nothing is shifted or appended.
A rule is told afterwards what the new tokens attended to. Reading evicts in bulk instead: see `distill`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor

from ondevice.errors import PotError
from ondevice.pot.distill import RotateKeys, reset_positions
from ondevice.pot.memory_pot import MemoryPot, Victims

# Positions may run to this many times the capacity before they are counted anew. Each count rotates all keys once,
# so the rarer the cheaper; but the angles of large positions lose digits.
_FRAME = 4
_SAVED_AT_ONCE = 64  # one copy for many tokens instead of one for each

# Is told which slots are about to be lost; None: any of them may be.
Save = Callable[[Victims | None], None]


def _save_nothing(victims: Victims | None) -> None:
    pass


class Eviction(Protocol):
    """A rule for decoding."""

    @property
    def observes(self) -> bool:
        """Whether `observe` needs the attention of every new token."""
        ...

    def make_room(self, num_tokens: int = 1) -> None:
        """Choose the slots that the next `num_tokens` tokens overwrite, in a pot without room for them.

        Raises:
            PotError: fewer slots may be evicted.
        """
        ...

    def observe(self, mass: list[Tensor]) -> None:
        """Take in the attention mass, for each layer (batch, num_kv_heads, num_cached), of the tokens just added."""
        ...


class SinkRecent:
    """Sinks and the most recent tokens (StreamingLLM, arXiv 2309.17453), without shifting anything.

    By its definition the cached tokens have positions 0..n-1 at every step, so that all of them change. Attention
    sees differences only: the query and the recent tokens keep theirs if both count on, and it is enough to rotate
    the sinks again, which stay as far behind the query as they were.

    Args:
        pot: its slots 0..num_sinks-1 hold the sinks of every head.
        num_sinks: slots never evicted.
        rotate_keys: keys (batch, num_kv_heads, n, head_dim) and positions (batch, num_kv_heads, n) -> keys with RoPE.
        save: for an undo log.
    """

    observes = False

    def __init__(self, pot: MemoryPot, num_sinks: int, rotate_keys: RotateKeys, *, save: Save = _save_nothing) -> None:
        self._pot, self._num_sinks, self._rotate_keys, self._save = pot, num_sinks, rotate_keys, save
        self._ring: _Ring | None = None

    def make_room(self, num_tokens: int = 1) -> None:
        pot = self._pot
        if self._ring is None:
            self._ring = self._oldest_first()
            self._save(slice(0, self._num_sinks))
        pot.victims = self._ring.take(num_tokens)
        if max(pot.next_position) + num_tokens > _FRAME * pot.shape.capacity:
            self._count_anew()
        # The sinks follow the query.
        sinks = slice(0, self._num_sinks)
        pot.positions[..., sinks] += num_tokens
        pot.rotate_slots(sinks, self._rotate_keys)

    def observe(self, mass: list[Tensor]) -> None:
        pass

    def _oldest_first(self) -> _Ring:
        """All slots behind the sinks. What replaces the oldest is the newest, so their order holds for ever."""
        pot, first = self._pot, self._num_sinks
        layers = zip(pot.positions, pot.num_cached, strict=True)
        return _Ring([positions[..., first:used].argsort(dim=-1) + first for positions, used in layers], self._save)

    def _count_anew(self) -> None:
        """Lower all positions alike, which changes no difference, and rotate all keys for it."""
        pot, used = self._pot, min(self._pot.num_cached)
        self._save(None)
        offset = int(pot.positions[..., :used].min())
        for layer, num_cached in enumerate(pot.num_cached):
            pot.positions[layer, ..., :num_cached] -= offset
            pot.next_position[layer] -= offset
        pot.refresh_keys(slice(0, pot.shape.num_layers), self._rotate_keys)


class FixedOrder:
    """A fixed order per head; behind the last slot it begins anew, with the oldest of the new tokens.

    Args:
        pot: the pot that decodes.
        order: for each layer (batch, num_kv_heads, num_open) int64, what goes first; other slots never go.
        rotate_keys: as for `SinkRecent`.
        max_positions: positions are counted anew by `reset_positions` before they reach this.
        save: for an undo log.
    """

    observes = False

    def __init__(
        self,
        pot: MemoryPot,
        order: Sequence[Tensor],
        rotate_keys: RotateKeys,
        *,
        max_positions: int,
        save: Save = _save_nothing,
    ) -> None:
        self._pot, self._rotate_keys, self._max_positions, self._save = pot, rotate_keys, max_positions, save
        self._ring = _Ring(order, save)

    def make_room(self, num_tokens: int = 1) -> None:
        self._pot.victims = self._ring.take(num_tokens)
        _keep_in_window(self._pot, num_tokens, self._max_positions, self._rotate_keys, self._save)

    def observe(self, mass: list[Tensor]) -> None:
        pass


def least_attended(pot: MemoryPot, mass: list[Tensor], num_used: list[int], num_protected: int) -> list[Tensor]:
    """An order for `FixedOrder`: what some queries heeded least goes first, head by head.

    Args:
        mass: their attention, for each layer (batch, num_kv_heads, n) with n at least `num_used`.
        num_used: slots of each layer that may go.
        num_protected: slots at logical positions below this never go (prompt and sinks).
    """
    order = []
    for layer_mass, positions, used in zip(mass, pot.positions, num_used, strict=True):
        score = layer_mass[..., :used].masked_fill(positions[..., :used] < num_protected, torch.inf)
        # Every head keeps its prompt; the same number of slots is open in all of them.
        num_open = int((score < torch.inf).sum(dim=-1).min())
        order.append(score.argsort(dim=-1)[..., :num_open])
    return order


class HeavyHitter:
    """The slots with the least attention so far go, head by head; sinks and recent tokens stay (H2O, 2306.14048).

    Args:
        pot: the pot that decodes; its slots 0..num_sinks-1 hold the sinks of every head.
        num_sinks, num_recent: slots never evicted, newest tokens never evicted.
        rotate_keys, max_positions, save: as for `FixedOrder`.
        mass: attention received so far, for each layer (batch, num_kv_heads, num_cached); None: not known.
    """

    observes = True

    def __init__(
        self,
        pot: MemoryPot,
        num_sinks: int,
        num_recent: int,
        rotate_keys: RotateKeys,
        *,
        max_positions: int,
        mass: list[Tensor] | None = None,
        save: Save = _save_nothing,
    ) -> None:
        self._pot, self._num_sinks, self._num_recent, self._rotate_keys = pot, num_sinks, num_recent, rotate_keys
        self._max_positions, self._save, self._is_saved = max_positions, save, False
        self._scores = torch.zeros_like(pot.importance)
        if mass is not None:
            self.observe(mass)
        self._scores[..., :num_sinks] = torch.inf

    def make_room(self, num_tokens: int = 1) -> None:
        pot = self._pot
        _check_open(num_tokens, min(pot.num_cached) - self._num_sinks - self._num_recent)
        if not self._is_saved:
            self._save(None)
            self._is_saved = True
        victims = []
        for scores, positions, used, newest in zip(
            self._scores, pot.positions, pot.num_cached, pot.next_position, strict=True
        ):
            is_recent = positions[..., :used] >= newest - self._num_recent
            open_scores = scores[..., :used].masked_fill(is_recent, torch.inf)
            victims.append(open_scores.topk(num_tokens, dim=-1, largest=False).indices)
            scores.scatter_(-1, victims[-1], 0.0)  # what a new token receives is counted from 0
        pot.victims = victims
        _keep_in_window(pot, num_tokens, self._max_positions, self._rotate_keys, self._save)

    def observe(self, mass: list[Tensor]) -> None:
        for scores, layer_mass in zip(self._scores, mass, strict=True):
            scores[..., : layer_mass.shape[-1]] += layer_mass


class _Ring:
    """Takes slots in a given order, again and again; each is saved before it goes for the first time.

    Args:
        order: for each layer (batch, num_kv_heads, num_open) int64.
        save: called with some slots at once, ahead of their time.
    """

    def __init__(self, order: Sequence[Tensor], save: Save) -> None:
        self._order, self._save = order, save
        # Layers that hold fewer tokens, because some were pruned, come round sooner.
        self._fewest, self._num_open = min(sizes := [layer.shape[-1] for layer in order]), max(sizes)
        self._turn = self._num_saved = 0
        first = order[0][:1, :1]
        is_shared = all(layer.shape == order[0].shape and bool((layer == first).all()) for layer in order)
        run = torch.arange(self._num_open, device=first.device) + first[..., :1]
        # One run of slots, the same in every head: a slice says it all.
        self._first_slot = int(first[0, 0, 0]) if is_shared and self._num_open and torch.equal(run, first) else None

    def take(self, num_tokens: int) -> Victims:
        _check_open(num_tokens, self._fewest)
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
        return [_cyclic(order, start, stop) for order in self._order]


def _cyclic(order: Tensor, start: int, stop: int) -> Tensor:
    """order[..., start:stop], beginning anew behind its end."""
    size = order.shape[-1]
    first = start % size
    if first + stop - start <= size:
        return order[..., first : first + stop - start]
    return order[..., torch.arange(start, stop, device=order.device) % size]


def _keep_in_window(pot: MemoryPot, num_tokens: int, max_positions: int, rotate_keys: RotateKeys, save: Save) -> None:
    """Count positions anew before they run past what the model was trained on."""
    if max(pot.next_position) + num_tokens <= max_positions or max(pot.num_cached) + num_tokens > max_positions:
        return
    save(None)
    for layers, _ in pot.layers_by_length():
        reset_positions(pot, layers, rotate_keys)


def _check_open(num_tokens: int, num_open: int) -> None:
    if num_tokens > num_open:
        raise PotError(
            f"{num_tokens} new tokens need as many slots, and only {max(num_open, 0)} of the pot may be overwritten",
            fix="Raise --capacity, or lower --sinks.",
        )
