"""State of the layers that have no slots: the last tokens of a window, a recurrent state, a convolution's last inputs.

It is of fixed size, allocated once. What a pass makes of it waits until the pass is committed, so that a stopped one
leaves no trace; and since no token can be taken out of it again, what comes back is a snapshot of all of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ondevice.pot.saved_state import check_finite, check_names, take, take_counts
from ondevice.pot.shape import StatePart

PREFIX = "native."  # of the names of what is saved
_NUM_SEEN = PREFIX + "num_seen"


class Snapshot(NamedTuple):
    """Copies of a state."""

    num_seen: int
    contents: list[Tensor]


class NativeState:
    """The state of all layers without slots; empty where a model has none.

    Attributes:
        num_seen: tokens that are folded into it.
        buffers: every tensor that it owns.
    """

    def __init__(self, parts: Sequence[StatePart], batch: int, dtype: torch.dtype, device: torch.device) -> None:
        self.num_seen = 0
        self._parts = tuple(parts)
        self.buffers = [torch.zeros(batch, *part.size, dtype=part.dtype or dtype, device=device) for part in parts]
        self._pending: dict[int, Sequence[Tensor]] = {}

    def of(self, layer: int) -> list[Tensor]:
        """The parts of one layer's state before the pass at hand."""
        return [buffer for part, buffer in zip(self._parts, self.buffers, strict=True) if part.layer == layer]

    def append_(self, layer: int, new: Sequence[Tensor]) -> None:
        """Keep the state of one layer after the tokens of a pass that stay, until `commit_`."""
        self._pending[layer] = new

    def commit_(self, num_tokens: int) -> None:
        """Count the tokens of a pass."""
        for layer, new in self._pending.items():
            for buffer, part in zip(self.of(layer), new, strict=True):
                if buffer.device.type == "cpu" and buffer.dtype == torch.float32:
                    # torch would wake its threads for it, which spin beside those of our kernels afterwards.
                    np.copyto(buffer.numpy(), part.numpy())
                else:
                    buffer.copy_(part)
        self.num_seen += num_tokens
        self._pending.clear()

    def discard_(self) -> None:
        """Forget what a pass has appended that is not committed."""
        self._pending.clear()

    def snapshot(self) -> Snapshot:
        """Copies of all of it."""
        return Snapshot(self.num_seen, [buffer.clone() for buffer in self.buffers])

    def restore_(self, snapshot: Snapshot) -> None:
        """Become again what it was, bit for bit."""
        self.num_seen = snapshot.num_seen
        for buffer, content in zip(self.buffers, snapshot.contents, strict=True):
            buffer.copy_(content)

    def saved(self) -> dict[str, Tensor]:
        """Copies of all of it by name; none where a model has none."""
        named = {name: buffer.clone() for name, buffer in self._named()}
        return named | {_NUM_SEEN: torch.tensor([self.num_seen])} if named else {}

    def load_(self, saved: Mapping[str, Tensor]) -> None:
        """Become what was saved; raises DamagedPot, and stays, where no state of this size and type can be that."""
        named = dict(self._named())
        check_names(saved, {*named, _NUM_SEEN} if named else set())
        if named:
            found = [take(saved, name, buffer.dtype, tuple(buffer.shape)) for name, buffer in named.items()]
            for name, part in zip(named, found, strict=True):
                check_finite(name, part)
            self.restore_(Snapshot(take_counts(saved, _NUM_SEEN, 1, 1 << 62)[0], found))

    def _named(self) -> Iterator[tuple[str, Tensor]]:
        return zip((f"{PREFIX}{part.name}.{part.layer}" for part in self._parts), self.buffers, strict=True)
