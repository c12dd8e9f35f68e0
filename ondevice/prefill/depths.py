"""How deep into the model each token of the document got: the account of what was pruned, and where."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from torch import Tensor


class Depths:
    """The number of layers that were given each document token; nothing is stored while nothing is pruned.

    Args:
        num_layers: of the model.
        depths: from `state` of another.
    """

    def __init__(self, num_layers: int, depths: npt.NDArray[np.uint16] | None = None) -> None:
        self._num_layers = num_layers
        self.state = np.zeros(0, np.uint16) if depths is None else depths

    def note(self, start: int, stop: int, offsets: Sequence[Tensor] | None) -> None:
        """Add the tokens [start, stop) of one pass.

        Args:
            offsets: for each layer which of them it was given, (n,) int64; None: all of them.
        """
        if offsets is None and not self.state.size:
            return  # nothing was ever pruned
        depths = np.zeros(stop - start, np.uint16)
        for given in offsets or ():
            depths[given.cpu().numpy()] += 1
        if offsets is None:
            depths += self._num_layers
        # What a policy leaves out of the reading lies between, at depth 0; what was read before got through.
        self.state = np.concatenate((self.state, np.zeros(start - self.state.size, np.uint16), depths))

    @property
    def pruned_per_layer(self) -> tuple[int, ...]:
        """For each layer the tokens that were read and never got there."""
        counts = np.bincount(self.state, minlength=self._num_layers + 1)[1:]
        return tuple(int(n) for n in np.concatenate(([0], counts.cumsum()[:-1])))

    def num_pruned(self, kept: npt.NDArray[np.int32]) -> int:
        """Tokens that did not get to the last layer and are not among the `kept` ones (n,)."""
        is_pruned = (self.state > 0) & (self.state < self._num_layers)
        is_pruned[kept[kept < is_pruned.size]] = False
        return int(is_pruned.sum())

    @property
    def skipped(self) -> npt.NDArray[np.int64]:
        """Document tokens (n,) that no layer was given, rising, where that is stored."""
        return np.flatnonzero(self.state == 0)

    def copy(self) -> Depths:
        return Depths(self._num_layers, self.state)
