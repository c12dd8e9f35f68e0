"""Hidden states of tokens that pruning dropped, kept outside the pot so that a question can have them read to the end.

It owns host memory of a fixed size, as a ring beside the one of `kv_tier`: once it is full the oldest go.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from ondevice.pot.host.kv_tier import allocate, ring_parts, to_host
from ondevice.pot.saved_state import Extent, check_distinct, check_finite, check_names, check_within, take
from ondevice.pot.shape import FREE

_DTYPE = (
    torch.bfloat16
)  # 8 bits would not do: a few numbers of a hidden state are hundreds of times larger than the rest


@dataclass(frozen=True, slots=True)
class DroppedStates:
    """Tokens that one slim layer dropped, after its attention and before its feed-forward network.

    `layer` counts from 0; `tokens` (n,) are offsets in a pass, or document tokens; `states` (n, hidden_size).
    """

    layer: int
    tokens: Tensor
    states: Tensor


class HiddenTier:
    """A ring of hidden states, (capacity, hidden_size) bfloat16.

    Args:
        folder: as for `HostTier`.

    Attributes:
        num_bytes_moved: written into the tier so far.
        origin: (capacity,) int32, the document token in each place, or `FREE`.
        layers: (capacity,) int32, the layer that dropped it.
    """

    def __init__(self, hidden_size: int, budget_bytes: int, *, folder: Path | None = None) -> None:
        self.capacity = max(budget_bytes // self.token_bytes(hidden_size), 1)
        self._states = allocate((self.capacity, hidden_size), _DTYPE, folder)
        self.origin = torch.full((self.capacity,), FREE, dtype=torch.int32)
        self.layers = torch.zeros(self.capacity, dtype=torch.int32)
        self._num_written = self.num_bytes_moved = 0

    @staticmethod
    def token_bytes(hidden_size: int) -> int:
        """Bytes of one token with what is kept beside it."""
        return hidden_size * _DTYPE.itemsize + 8

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers, constant."""
        return self._states.nbytes + self.origin.nbytes + self.layers.nbytes

    @property
    def num_held(self) -> int:
        """Hidden states that are here."""
        return min(self._num_written, self.capacity)

    def offload(self, dropped: DroppedStates) -> None:
        """Copy dropped tokens of the document into the ring, over the oldest once it is full."""
        extra = max(dropped.tokens.shape[0] - self.capacity, 0)
        tokens, states = to_host(dropped.tokens[extra:]), to_host(dropped.states[extra:])
        for part, first in ring_parts(self._num_written % self.capacity, tokens.shape[0], self.capacity):
            at = slice(first, first + part.stop - part.start)
            self._states[at], self.origin[at], self.layers[at] = (
                states[part].to(_DTYPE),
                tokens[part].int(),
                dropped.layer,
            )
        self._num_written += tokens.shape[0]
        self.num_bytes_moved += tokens.shape[0] * self._states[0].nbytes

    def find(self, tokens: Tensor, dtype: torch.dtype) -> list[DroppedStates]:
        """Those of some document tokens (n,) that are here, the shallowest layer first, each in document order."""
        places = torch.isin(self.origin, tokens.int()).nonzero().squeeze(1)
        places = places[self.origin[places].argsort()]
        layers = self.layers[places]
        return [
            DroppedStates(int(layer), self.origin[at], self._states[at].to(dtype))
            for layer in layers.unique()
            for at in (places[layers == layer],)
        ]

    def state(self) -> dict[str, Tensor]:
        """Contents by name, the oldest first; with `restore` another tier goes on where this one is."""
        used, oldest = self._num_written, 0
        if used > self.capacity:
            used, oldest = self.capacity, self._num_written % self.capacity
        buffers = {"states": self._states, "origin": self.origin, "layers": self.layers}
        return {name: buffer[:used].roll(-oldest, dims=0) for name, buffer in buffers.items()}

    def restore(self, state: dict[str, Tensor], extent: Extent, num_layers: int) -> None:
        """Take over what `state` of another tier gave; where this one is smaller, the last of it.

        Args:
            extent: of the document that was read.
            num_layers: of the model.

        Raises:
            DamagedPot: no tier can have that state.
        """
        check_names(state, {"states", "origin", "layers"})
        origin = take(state, "origin", torch.int32, (None,))
        layers = take(state, "layers", torch.int32, origin.shape)
        states = take(state, "states", _DTYPE, (*origin.shape, self._states.shape[1]))
        check_within("layers", layers, 0, num_layers)
        extent.check_tokens("hidden states", origin)
        extent.check_dropped("hidden states", origin, layers)
        check_distinct("hidden states", origin)
        check_finite("hidden states", states)
        self.origin.fill_(FREE)
        used = min(origin.shape[0], self.capacity)
        for buffer, saved in ((self._states, states), (self.origin, origin), (self.layers, layers)):
            buffer[:used] = saved[-used:] if used else saved
        self._num_written = used
