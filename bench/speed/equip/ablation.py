"""EQUIP's first optimisation alone, to see what it is worth without the others; used for nothing else."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from ondevice.kernels import replace_slots_
from torch import Tensor

from ondevice.pot.memory_pot import Victims
from ondevice_bench.speed.equip.baselines import rotate_half


class InPlaceRecomputeCache:
    """StreamingLLM whose keys (before RoPE) and values are overwritten in place, and RoPE computed for all keys again.

    Cached tokens have positions 0..n-1 by age, in the order of the slots a permutation: angles are looked up by it.

    Args:
        shape: (num_layers, batch, num_kv_heads, capacity, head_dim).
        num_sinks, cos, sin: as for `ShiftAppendCache`.
    """

    observes = False

    def __init__(
        self, shape: tuple[int, int, int, int, int], num_sinks: int, cos: Tensor, sin: Tensor, *, dtype: torch.dtype
    ) -> None:
        self.victims: Victims | None = None
        self.num_cached = [0] * shape[0]
        self.next_position = [0] * shape[0]
        self._keys, self._values = torch.zeros(2, *shape, dtype=dtype, device=cos.device).unbind()
        self._num_sinks, self._capacity = num_sinks, shape[3]
        self.max_positions = shape[3]
        self._cos, self._sin = cos, sin
        self._angles = cos, sin
        self._oldest = num_sinks  # slot
        self._positions = torch.arange(shape[3], device=cos.device)  # of each slot

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers."""
        return self._keys.nbytes + self._values.nbytes

    def make_room(self, num_tokens: int = 1) -> None:
        """Let the next token overwrite the oldest one after the sinks."""
        assert num_tokens == 1, "one token at a time is what is compared"
        self.victims = slice(self._oldest, self._oldest + 1)
        self._positions[self._num_sinks :] -= 1
        self._positions[self._oldest] = self._capacity - 1
        self._angles = self._cos[self._positions], self._sin[self._positions]
        self.next_position = [self._capacity - 1] * len(self.next_position)
        self._oldest = max((self._oldest + 1) % self._capacity, self._num_sinks)

    def observe(self, mass: list[Tensor]) -> None:
        """Nothing: age alone decides what is evicted."""

    def append_(self, layer: int, keys: Tensor, rotated: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Write in place; returns all keys after RoPE, and all values. Arguments as for `ShiftAppendCache.append_`."""
        start = self.num_cached[layer]
        end = start if self.victims is not None else start + keys.shape[2]
        for buffer, new in ((self._keys, keys), (self._values, values)):
            replace_slots_(buffer[layer], self.victims if isinstance(self.victims, slice) else slice(start, end), new)
        seen = self._keys[layer, :, :, :end]
        cos, sin = (angle[:end] for angle in self._angles)
        return seen * cos + rotate_half(seen) * sin, self._values[layer, :, :, :end]

    def commit_(
        self, num_tokens: int, origin: Tensor | int, num_transient: int = 0, offsets: Sequence[Tensor] | None = None
    ) -> None:
        """Count the tokens just written; where they come from is not remembered."""
        if self.victims is None:
            self.num_cached = [cached + num_tokens for cached in self.num_cached]
            self.next_position = list(self.num_cached)
        self.victims = None

    def discard_(self, num_tokens: int) -> None:
        """Refuse: what the pass replaced is gone."""
        raise RuntimeError("a baseline cannot be stopped in the middle of a pass")
