"""RoPE of a loaded model: tables of cosines and sines, with one set of frequencies for all that meets in one pot.

Some models turn by other frequencies once a text outgrows what they were first trained on: longrope (Phi-3-128k,
Phi-3.5, Phi-4-mini) has two sets, dynamic NTK one for every length. transformers takes the set by the largest position
of each call. Passes of many calls attend to each other in a pot, so here the most positions that can occur in the pot
decide, once and for all.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ondevice.errors import PotError
from ondevice.kernels.rope import rows_of, signed_sine
from ondevice.machine.memory import free_memory_bytes
from ondevice.model.families.parts import ModelParts, Turn

_FEWEST = 64  # positions of a table; a larger one has a power of two, so that few steps need a new one
# For each number of a position's angles: two tables, and what they are computed from.
_TABLE_BYTES = 6 * 4
_MOST_SETS = 4  # tables that are kept: of the main model's pots and the speculator's, before and after a switch


class Rotary:
    """Tables of one model, or of those of its layers that share a RoPE.

    Args:
        turn: the RoPE of those layers.
    """

    def __init__(self, parts: ModelParts, turn: Turn) -> None:
        self._rotary: Any = turn
        self._trained, self._dim, self.device = parts.max_positions, parts.kv_size[2], parts.device
        self._like = torch.empty(0, dtype=parts.dtype, device=parts.device)
        self._kind = getattr(turn, "rope_type", "default")
        self._tables: dict[int, tuple[Any, Tensor, Tensor]] = {}  # by reach: the module, cosines, signed sines

    @property
    def dim(self) -> int:
        """Numbers of a head that turn."""
        return self.table(1, 1)[0].shape[-1]

    def reach(self, max_positions: int) -> int:
        """Positions that the frequencies of a text of `max_positions` tokens are meant for."""
        if self._kind == "longrope":
            first = self._rotary.config.rope_parameters["original_max_position_embeddings"]
            return first if max_positions <= first else sys.maxsize
        if "dynamic" in self._kind:
            return max(max_positions, self._trained)
        return sys.maxsize

    def table(self, size: int, max_positions: int) -> tuple[Tensor, Tensor]:
        """Cosines and signed sines of positions 0..size-1 and more, each (n, rotary_dim).

        Args:
            max_positions: the most that can occur in the pot.
        """
        reach = self.reach(max_positions)
        rotary, cos, sin = self._tables.get(reach, (None, self._like, self._like))
        if rotary is None or cos.shape[0] < size:
            if rotary is None:
                rotary = self._with_frequencies(max_positions)
                if len(self._tables) == _MOST_SETS:
                    del self._tables[next(iter(self._tables))]
            length = max(_FEWEST, 1 << (size - 1).bit_length())
            self._require_room(length)
            positions = torch.arange(length, device=self._like.device)
            (cos,), (sin,) = rotary(self._like, positions[None])
            sin = signed_sine(sin)
            self._tables[reach] = rotary, cos, sin
        return cos, sin

    def _require_room(self, length: int) -> None:
        needed, free = length * self._dim * _TABLE_BYTES, free_memory_bytes(self._like.device)
        if needed > free:
            raise PotError(
                f"Angles for {length:,} positions take {needed / 1e9:.1f} GB, and {free / 1e9:.1f} GB are free",
                fix="Read with {pot.context_reset}, which keeps positions low.",
            )

    def _with_frequencies(self, max_positions: int) -> Any:
        """transformers' module with the frequencies of a text of so many tokens, whatever positions it is given."""
        if self._kind != "longrope" and "dynamic" not in self._kind:
            return self._rotary
        fixed = copy.deepcopy(self._rotary)
        for last in (0, max_positions - 1):  # a dynamic one forgets longer texts at a short one
            fixed(self._like, torch.tensor([[last]], device=self._like.device))
        fixed.rope_type = "default"  # the frequencies that it has by now are not computed again
        return fixed


class Angles:
    """Cosines and signed sines for one pass of `span` tokens, looked up once per distinct set of positions.

    Args:
        ropes: of each layer of the model that the pot has slots for; layers may share one.
        max_positions: of the pot.

    Attributes:
        offsets: (n,) int64, where in the pass those tokens are that are still computed.
    """

    def __init__(self, ropes: Sequence[Rotary], max_positions: int, span: int) -> None:
        self._ropes, self._max_positions, self.span = ropes, max_positions, span
        self.offsets = torch.arange(span, device=ropes[0].device)
        self._is_whole = True
        self._known: dict[tuple[Rotary, int], tuple[Tensor, Tensor]] = {}
        self._slots: dict[Rotary, tuple[Tensor, Tensor, Tensor]] = {}  # positions, their cosines and sines

    def table(self, layer: int, first: int) -> tuple[Tensor, Tensor]:
        """All positions up to the end of the pass, whose first token is at `first`: (num_positions, rotary_dim)."""
        return self._ropes[layer].table(first + self.span, self._max_positions)

    def at(self, layer: int, first: int) -> tuple[Tensor, Tensor]:
        """The tokens that are still computed, (1, 1, n, rotary_dim), where the pass begins at position `first`."""
        key = self._ropes[layer], first
        if key not in self._known:
            tables = self.table(layer, first)
            if self._is_whole:
                cos, sin = (table[first : first + self.span] for table in tables)
            else:
                cos, sin = (rows_of(table, self.offsets + first) for table in tables)
            self._known[key] = cos[None, None], sin[None, None]
        return self._known[key]

    def of_slots(self, layer: int, positions: Tensor, first: int) -> tuple[Tensor, Tensor]:
        """The slots of a layer, whose `positions` (batch or 1, kv_heads or 1, num_slots) often are those of the
        layer before: (*positions.shape, rotary_dim)."""
        rope = self._ropes[layer]
        known = self._slots.get(rope)
        # A GPU would have to be waited for until they are compared.
        if known is None or positions.device.type != "cpu" or not torch.equal(positions, known[0]):
            cos, sin = (rows_of(table, positions) for table in self.table(layer, first))
            known = self._slots[rope] = positions, cos, sin
        return known[1:]

    def keep(self, survivors: Tensor) -> None:
        """From now on only these of the tokens, indices (n,) int64."""
        self.offsets, self._is_whole = self.offsets[survivors], False
        self._known.clear()
