"""Hidden states of tokens that pruning dropped, kept outside the pot so that a question can have them read to the end.

It owns a ring beside those of `kv_tier` that grows up to a bound, as they do: once it is full the oldest go.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ondevice.pot.host.chunks import UNIT_ROWS, Chunks, Field, ring_parts, to_host
from ondevice.pot.saved_state import Extent, check_distinct, check_finite, check_names, check_within, take

# 8 bits would not do: a few numbers of a hidden state are hundreds of times larger than the rest.
_DTYPE = torch.bfloat16


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
        budget_bytes: the most that it may take.

    Attributes:
        capacity: hidden states, at most.
        num_bytes_moved: written into the tier so far.
    """

    def __init__(self, hidden_size: int, budget_bytes: int) -> None:
        self.capacity = max(budget_bytes // (UNIT_ROWS * self.token_bytes(hidden_size)), 1) * UNIT_ROWS
        self._ring = Chunks(_fields(hidden_size), self.capacity)
        self._hidden_size = hidden_size
        self._num_written = self.num_bytes_moved = 0

    @staticmethod
    def token_bytes(hidden_size: int) -> int:
        """Bytes of one token with what is kept beside it."""
        return sum(field.nbytes for field in _fields(hidden_size).values())

    @property
    def nbytes(self) -> int:
        """Bytes that it takes now."""
        return self._ring.nbytes

    @property
    def most_bytes(self) -> int:
        """Bytes that it may come to take."""
        return self.capacity * self.token_bytes(self._hidden_size)

    @property
    def num_held(self) -> int:
        """Hidden states that are here."""
        return min(self._num_written, self.capacity)

    @property
    def origin(self) -> Tensor:
        """The document token in each place, (num_held,) int32."""
        return self._ring.read("origin", slice(0, self.num_held))

    def expect(self, num_tokens: int) -> None:
        """As `HostTier.expect`: each token is dropped once at most."""
        assert not self._num_written, "the ring has begun"
        self._ring.limit(num_tokens)
        self.capacity = self._ring.capacity

    def offload(self, dropped: DroppedStates) -> None:
        """Copy dropped tokens of the document into the ring, over the oldest once it is full."""
        extra = max(dropped.tokens.shape[0] - self.capacity, 0)
        tokens, states = to_host(dropped.tokens[extra:]).int(), to_host(dropped.states[extra:].to(_DTYPE))
        self._put({"states": states, "origin": tokens, "layers": torch.full_like(tokens, dropped.layer)})
        self.num_bytes_moved += states.nbytes

    def find(self, tokens: Tensor, dtype: torch.dtype) -> list[DroppedStates]:
        """Those of some document tokens (n,) that are here, the shallowest layer first, each in document order."""
        places = torch.isin(self.origin, tokens.int()).nonzero().squeeze(1)
        origin, layers, states = (self._ring.read(name, places) for name in ("origin", "layers", "states"))
        order = origin.argsort()
        by_layer = ((layer, order[layers[order] == layer]) for layer in layers.unique().tolist())
        return [DroppedStates(layer, origin[at], states[at].to(dtype)) for layer, at in by_layer]

    def state(self) -> dict[str, Tensor]:
        """The tensors held here, by name, the oldest first; with `restore` another tier goes on where this one is."""
        oldest = self._num_written % self.capacity if self._num_written > self.capacity else 0
        names, held = ("states", "origin", "layers"), slice(0, self.num_held)
        return {name: self._ring.read(name, held).roll(-oldest, dims=0) for name in names}

    def restore(self, state: dict[str, Tensor], extent: Extent, depth: int) -> None:
        """Take over what `state` of another tier gave; where this one is smaller, the last of it.

        Args:
            extent: of the document that was read.
            depth: layers of the model.

        Raises:
            DamagedPot: no tier can have that state.
        """
        check_names(state, {"states", "origin", "layers"})
        origin = take(state, "origin", torch.int32, (None,))
        layers = take(state, "layers", torch.int32, origin.shape)
        states = take(state, "states", _DTYPE, (*origin.shape, self._hidden_size))
        check_within("layers", layers, 0, depth)
        extent.check_tokens("hidden states", origin)
        extent.check_dropped("hidden states", origin, layers)
        check_distinct("hidden states", origin)
        check_finite("hidden states", states)
        extra = max(origin.shape[0] - self.capacity, 0)
        self._put({"states": states[extra:], "origin": origin[extra:], "layers": layers[extra:]})

    def _put(self, new: dict[str, Tensor]) -> None:
        """Write rows of every field behind the newest ones."""
        count = new["origin"].shape[0]
        for part, first in ring_parts(self._num_written % self.capacity, count, self.capacity):
            for name, rows in new.items():
                self._ring.write(name, first, rows[part])
        self._num_written += count


def _fields(hidden_size: int) -> dict[str, Field]:
    """The fields that are kept of a token; the wider types first."""
    return {"origin": Field((), torch.int32), "layers": Field((), torch.int32), "states": Field((hidden_size,), _DTYPE)}
