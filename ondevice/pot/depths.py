"""Depths that the tokens of a document reached in the model: what was pruned, and where; and which heads hold them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ondevice.errors import DamagedPot
from ondevice.events import HeadCounts
from ondevice.pot.saved_state import check_names, take


class Depths:
    """The number of layers that were given each document token; nothing is stored while nothing is pruned.

    Args:
        num_layers: of the model.
        depths: from `state` of another.

    Attributes:
        num_layers: as given.
        state: (n,) uint16, of the tokens up to the cursor; empty while nothing is stored.
    """

    def __init__(self, num_layers: int, depths: npt.NDArray[np.uint16] | None = None) -> None:
        self.num_layers = num_layers
        self.state = np.zeros(0, np.uint16) if depths is None else depths

    def restore(self, state: Mapping[str, Tensor], num_tokens: int) -> None:
        """Take over those of a document of `num_tokens` tokens, read to its end, which `state` holds under "".

        Raises:
            DamagedPot: no reading of this document leaves that state.
        """
        check_names(state, {""})
        depths = take(state, "", torch.uint16, (None,)).numpy()
        if depths.size not in (0, num_tokens) or (depths > self.num_layers).any():
            raise DamagedPot("depths are not those of its document")
        self.state = depths

    def of_all(self, num_tokens: int, *, skips: bool) -> Tensor | None:
        """The depths of the first `num_tokens` tokens, int16; None while nothing is stored.

        Args:
            skips: some may have been left out of the reading; if not, what is noted at depth 0 got through.
        """
        if not self.state.size:
            return None
        depths = torch.full((num_tokens,), self.num_layers, dtype=torch.int16)
        depths[: self.state.size] = torch.from_numpy(self.state.astype(np.int16))
        return depths if skips else depths.masked_fill_(depths == 0, self.num_layers)

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
            depths += self.num_layers
        # What a policy leaves out of the reading lies between, at depth 0; what was read before got through.
        self.state = np.concatenate((self.state, np.zeros(start - self.state.size, np.uint16), depths))

    @property
    def pruned_per_layer(self) -> tuple[int, ...]:
        """For each layer the tokens that were read and never got there."""
        counts = np.bincount(self.state, minlength=self.num_layers + 1)[1:]
        return tuple(int(n) for n in np.concatenate(([0], counts.cumsum()[:-1])))

    def num_pruned(self, kept: npt.NDArray[np.int32]) -> int:
        """Tokens that did not get to the last layer and are not among the `kept` ones (n,)."""
        is_pruned = (self.state > 0) & (self.state < self.num_layers)
        is_pruned[kept[kept < is_pruned.size]] = False
        return int(is_pruned.sum())

    @property
    def skipped(self) -> npt.NDArray[np.int64]:
        """Document tokens (n,) that no layer was given, rising, if that is stored."""
        return np.flatnonzero(self.state == 0)


def count_heads(origin: Tensor, num_tokens: int) -> HeadCounts:
    """(layer, head) pairs that hold each document token.

    Args:
        origin: of any shape, int32; negative = no document token.
        num_tokens: document tokens to report on.
    """
    # Sorted where the pot is: one copy is all that a device is waited for.
    held = origin.flatten().sort().values.cpu().numpy()
    held = held[np.searchsorted(held, 0) :]
    starts = np.flatnonzero(np.diff(held, prepend=np.int32(-1)))
    return HeadCounts(num_tokens, held[starts], np.diff(starts, append=held.size).astype(np.uint16))


def tokens_per_layer(origin: Tensor) -> tuple[tuple[int, ...], npt.NDArray[np.int32]]:
    """Distinct document tokens that some head holds: how many in each layer, and which in all of them (n,), rising.

    Args:
        origin: (layers, ...) int32; negative = no document token.
    """
    per_layer = tuple(int(np.unique(_document_tokens(layer)).size) for layer in origin)
    return per_layer, np.unique(_document_tokens(origin))


def _document_tokens(origin: Tensor) -> npt.NDArray[np.int32]:
    flat = origin.cpu().numpy().ravel()
    return flat[flat >= 0]
