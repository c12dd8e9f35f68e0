"""Mean keys of all that the speculator has read, by which a later question finds what was skipped.

A block of the document is scored by the best of its units, as in SlimInfer. Keys are those before RoPE: where a unit
stood says nothing about what it holds.

Unlike pots this is not of fixed size: it grows with the document, by a key in 16 bits for every eight tokens in each
KV head of each scoring layer. A question takes room for those of one layer more, in the model's type.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ondevice.errors import DamagedPot
from ondevice.kernels.attention_sharpness import attention_sharpness
from ondevice.pot.saved_state import check_finite, check_names, check_within, take

UNIT_TOKENS = 8
BLOCK_TOKENS = 64
_DTYPE = torch.float16
MEMORY = "memory."  # what the names in its state begin with
_KEYS, _STRETCHES = f"{MEMORY}keys", f"{MEMORY}stretches"


class MemoryOfKeys:
    """Mean keys of units, stretch by stretch."""

    def __init__(self) -> None:
        self._keys: list[Tensor] = []  # (num_units, num_layers, num_kv_heads, head_dim) of one stretch or of several
        self._stretches: list[tuple[int, int]] = []  # document tokens [start, stop); units and blocks begin with them

    @property
    def nbytes(self) -> int:
        """Bytes of the keys."""
        return sum(keys.nbytes for keys in self._keys)

    def add(self, keys: Sequence[Tensor], start: int) -> None:
        """Take in a stretch.

        Args:
            keys: of each scoring layer (1, num_kv_heads, n, head_dim) before RoPE.
            start: document token at which it begins.
        """
        units = [torch.stack([unit.mean(dim=2)[0] for unit in layer.split(UNIT_TOKENS, dim=2)]) for layer in keys]
        self._keys.append(torch.stack(units, dim=1).to("cpu", _DTYPE))
        self._stretches.append((start, start + keys[0].shape[2]))

    def best(
        self,
        queries: Sequence[Tensor],
        num_tokens: int,
        among: npt.NDArray[np.int64],
        *,
        scale: float,
        softcap: float | None,
    ) -> npt.NDArray[np.int64]:
        """Tokens of `among` (n,), rising, in the blocks that a question attends to most sharply.

        Args:
            queries: of each scoring layer (1, num_heads, n, head_dim) before RoPE.
            num_tokens: so many of them, where there are so many; of the last block those in its best units.
            among: (m,) document tokens, rising.
        """
        if not self._keys:
            return np.empty(0, np.int64)
        keys = self._merged()
        votes = torch.zeros(keys.shape[0])
        for index, query in enumerate(queries):
            layer = keys[:, index].permute(1, 0, 2)[None].to(query)
            votes += attention_sharpness(query, layer, scale=scale, softcap=softcap)[0].cpu()
        blocks = [
            (first, min(first + BLOCK_TOKENS, stop))
            for start, stop in self._stretches
            for first in range(start, stop, BLOCK_TOKENS)
        ]
        num_units = torch.tensor([-(-(stop - start) // UNIT_TOKENS) for start, stop in blocks])
        block_of = torch.arange(len(blocks)).repeat_interleave(num_units)
        scores = torch.zeros(len(blocks)).scatter_reduce_(0, block_of, votes, "amax")
        chosen, missing = [np.empty(0, np.int64)], num_tokens
        for block in scores.argsort(descending=True, stable=True).tolist():
            first, stop = blocks[block]
            tokens = among[slice(*np.searchsorted(among, (first, stop)))]
            if tokens.size > missing:
                units = votes[block_of == block].numpy()[(tokens - first) // UNIT_TOKENS]
                tokens = tokens[(-units).argsort(kind="stable")[:missing]]
            chosen.append(tokens)
            missing -= tokens.size
            if missing == 0:
                break
        return np.sort(np.concatenate(chosen))

    def state(self) -> dict[str, Tensor]:
        """All of it, by name; empty where nothing was added."""
        if not self._keys:
            return {}
        return {_KEYS: self._merged(), _STRETCHES: torch.tensor(self._stretches)}

    def restore(self, state: dict[str, Tensor], num_tokens: int, shape: tuple[int, int, int]) -> None:
        """Take over what `state` of another one gave.

        Args:
            num_tokens: of the document.
            shape: (num_layers, num_kv_heads, head_dim) of what it remembers.

        Raises:
            DamagedPot: nothing that has read this document can have that state.
        """
        if not state:
            return
        check_names(state, {_KEYS, _STRETCHES})
        stretches = take(state, _STRETCHES, torch.int64, (None, 2))
        check_within(_STRETCHES, stretches, 0, num_tokens + 1)
        starts, stops = stretches.unbind(1)
        if not len(stretches) or (stops <= starts).any() or (starts[1:] < stops[:-1]).any():
            raise DamagedPot(f"{_STRETCHES} do not follow each other")
        num_units = int((-(-(stops - starts) // UNIT_TOKENS)).sum())
        keys = take(state, _KEYS, _DTYPE, (num_units, *shape))
        check_finite(_KEYS, keys)
        self._keys = [keys]
        self._stretches = [(start, stop) for start, stop in stretches.tolist()]

    def _merged(self) -> Tensor:
        """The keys of all stretches; they are joined once, and no question copies them again."""
        if len(self._keys) > 1:
            self._keys = [torch.cat(self._keys)]
        return self._keys[0]
