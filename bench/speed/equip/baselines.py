"""Baselines of EQUIP: StreamingLLM and H2O with the copies that their usual implementations make.

Each class stands in for a `MemoryPot` in `Decoder.forward` and is its own eviction rule: `make_room` before a pass
that would not fit, `observe` after it. They are here to be measured against and are used for nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ondevice.pot.memory_pot import Victims


class _Cache:
    """The bookkeeping of both: every layer holds equally many tokens, in new tensors after every step.

    Attributes:
        num_cached, next_position, max_positions, victims: as in `MemoryPot`; nothing is ever overwritten.
        keys, values: one tensor a layer, (batch, kv_heads, num_cached, dim); empty before the first token.
    """

    def __init__(self, num_layers: int, capacity: int) -> None:
        self.victims: Victims | None = None
        self.capacity = self.max_positions = capacity
        self.num_cached = [0] * num_layers
        self.next_position = [0] * num_layers
        self.keys: list[Tensor] = []
        self.values: list[Tensor] = []

    @property
    def nbytes(self) -> int:
        """Bytes of what is cached now, without the second copy that every step needs beside it."""
        return sum(tensor.nbytes for tensor in self.tensors())

    def tensors(self) -> list[Tensor]:
        """Everything that is cached."""
        return [*self.keys, *self.values]

    def commit_(
        self, num_tokens: int, origin: Tensor | int, num_transient: int = 0, offsets: Sequence[Tensor] | None = None
    ) -> None:
        """Count the tokens just appended; where they come from is not remembered."""
        assert num_transient == 0, "there is no catalyst here"
        assert offsets is None, "nothing is pruned here"
        self.num_cached = [values.shape[2] for values in self.values]

    def discard_(self, num_tokens: int) -> None:
        """Refuse: what the pass replaced is gone."""
        raise RuntimeError("a baseline cannot be stopped in the middle of a pass")


class ShiftAppendCache(_Cache):
    """StreamingLLM (arXiv 2309.17453): sinks and recent tokens, shifted together and appended to at every step.

    Keys are cached before RoPE. By the method's definition the cached tokens have positions 0..n-1 whatever was
    evicted, so RoPE is applied to all of them at every step, as transformers applies it to a layer's new keys.
    Eviction and insertion are one concatenation here; implementations that evict first copy everything twice.

    Args:
        num_layers: of the model.
        capacity: tokens cached at most, with the sinks.
        num_sinks: first tokens, which stay.
        cos, sin: (capacity, dim), of positions 0..capacity-1, the sine without a sign.
        caches_halves: shift and append `rotate_half(keys)` too, instead of computing it again.
    """

    def __init__(
        self, num_layers: int, capacity: int, num_sinks: int, cos: Tensor, sin: Tensor, *, caches_halves: bool = False
    ) -> None:
        super().__init__(num_layers, capacity)
        self._num_sinks, self._cos, self._sin = num_sinks, cos, sin
        self._caches_halves = caches_halves
        self._halves: list[Tensor] = []
        self._num_evicted = 0

    def tensors(self) -> list[Tensor]:
        return [*super().tensors(), *self._halves]

    def make_room(self) -> None:
        """Let the next pass evict the oldest token after the sinks; the new one then has the last position."""
        self._num_evicted = max(self.num_cached[0] + 1 - self.capacity, 0)
        self.next_position = [cached - self._num_evicted for cached in self.num_cached]

    def append_(self, layer: int, keys: Tensor, rotated: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Shift and append; returns all keys after RoPE, and all values.

        Args:
            keys, rotated, values: (batch, kv_heads, n, dim), the new tokens; `rotated` is left out here.
        """
        _put(self.keys, layer, self._shifted(self.keys, layer, keys))
        _put(self.values, layer, self._shifted(self.values, layer, values))
        if self._caches_halves:
            _put(self._halves, layer, self._shifted(self._halves, layer, rotate_half(keys)))
        all_keys = self.keys[layer]
        halves = self._halves[layer] if self._caches_halves else rotate_half(all_keys)
        used = slice(0, all_keys.shape[2])
        return all_keys * self._cos[used] + halves * self._sin[used], self.values[layer]

    def commit_(
        self, num_tokens: int, origin: Tensor | int, num_transient: int = 0, offsets: Sequence[Tensor] | None = None
    ) -> None:
        super().commit_(num_tokens, origin, num_transient, offsets)
        self._num_evicted = 0
        self.next_position = list(self.num_cached)

    def _shifted(self, cached: list[Tensor], layer: int, new: Tensor) -> Tensor:
        if layer == len(cached):
            return new.clone()
        old, first_kept = cached[layer], self._num_sinks + self._num_evicted
        if self._num_evicted == 0:
            return torch.cat((old, new), dim=2)
        return torch.cat((old[:, :, : self._num_sinks], old[:, :, first_kept:], new), dim=2)


class GatherAppendCache(_Cache):
    """Heavy hitters (H2O, arXiv 2306.14048): the tokens with the most attention so far, and the recent ones.

    Every head keeps other tokens. What stays is marked in a boolean mask, gathered by it into a new tensor, and the
    new token is appended in another. Keys are cached after RoPE at the positions where they were read.

    Args:
        num_layers: of the model.
        capacity: tokens cached at most.
        num_sinks, num_recent: first and last tokens, which stay whatever they receive.
    """

    def __init__(self, num_layers: int, capacity: int, num_sinks: int, num_recent: int) -> None:
        super().__init__(num_layers, capacity)
        self._num_sinks, self._num_recent = num_sinks, num_recent
        # (batch, kv_heads, num_cached) float32 for each layer: attention received so far.
        self._scores: list[Tensor] = []

    def tensors(self) -> list[Tensor]:
        return [*super().tensors(), *self._scores]

    def make_room(self) -> None:
        """Evict, in every head, the token with the least attention, so that another one fits."""
        if self.num_cached[0] < self.capacity:
            return
        num_heavy = self.capacity - 1 - self._num_sinks - self._num_recent
        assert num_heavy >= 0, "sinks and recent tokens leave no room"
        for layer, scores in enumerate(self._scores):
            mask = heavy_hitter_mask(scores, num_heavy, self._num_sinks, self._num_recent)
            for cached in (self.keys, self.values):
                cached[layer] = gathered(cached[layer], mask)
            self._scores[layer] = scores[mask].view(*scores.shape[:2], -1)

    def observe(self, mass: list[Tensor]) -> None:
        """Add what the new tokens attended to, for each layer (batch, kv_heads, num_cached)."""
        for layer, received in enumerate(mass):
            self._scores[layer] = self._scores[layer] + received.float()

    def append_(self, layer: int, keys: Tensor, rotated: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Append; returns all keys (after RoPE) and values. Arguments as for `ShiftAppendCache.append_`."""
        for cached, new in ((self.keys, rotated), (self.values, values)):
            _put(cached, layer, torch.cat((cached[layer], new), dim=2) if layer < len(cached) else new.clone())
        return self.keys[layer], self.values[layer]

    def commit_(
        self, num_tokens: int, origin: Tensor | int, num_transient: int = 0, offsets: Sequence[Tensor] | None = None
    ) -> None:
        super().commit_(num_tokens, origin, num_transient, offsets)
        self.next_position = [position + num_tokens for position in self.next_position]
        for layer, keys in enumerate(self.keys):
            nothing_yet = torch.zeros(*keys.shape[:2], num_tokens, dtype=torch.float32, device=keys.device)
            _put(self._scores, layer, torch.cat((*self._scores[layer : layer + 1], nothing_yet), dim=-1))


def rotate_half(x: Tensor) -> Tensor:
    """The second half of the last dimension, negated, before the first: RoPE's other term, as transformers has it."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


def heavy_hitter_mask(scores: Tensor, num_heavy: int, num_sinks: int, num_recent: int) -> Tensor:
    """Mark the sinks, the recent tokens and the `num_heavy` of the others with the highest scores, head by head.

    Args:
        scores: (batch, kv_heads, num_cached).

    Returns:
        bool, shaped as `scores`.
    """
    num_cached = scores.shape[-1]
    heavy = scores[..., num_sinks : num_cached - num_recent].topk(num_heavy, dim=-1).indices + num_sinks
    always = torch.arange(num_cached, device=scores.device)
    always = torch.cat((always[:num_sinks], always[num_cached - num_recent :])).expand(*scores.shape[:2], -1)
    return torch.zeros_like(scores, dtype=torch.bool).scatter_(-1, torch.cat((heavy, always), dim=-1), True)


def gathered(cached: Tensor, mask: Tensor) -> Tensor:
    """The marked tokens of (batch, kv_heads, num_cached, dim), equally many in each head, in a new tensor."""
    batch, num_kv_heads, _, head_dim = cached.shape
    return cached[mask].view(batch, num_kv_heads, -1, head_dim)


def _put(cached: list[Tensor], layer: int, tensor: Tensor) -> None:
    """Replace the tensor of a layer, or put the first one there."""
    cached[layer : layer + 1] = [tensor]
