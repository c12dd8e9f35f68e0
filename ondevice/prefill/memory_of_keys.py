"""What the speculator remembers of all it has read: mean keys, by which a later question finds what was skipped.

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

from ondevice.kernels.attention import attention_votes

UNIT_TOKENS = 8
BLOCK_TOKENS = 64
_DTYPE = torch.float16


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

    def best(self, queries: Sequence[Tensor], num_blocks: int, *, scale: float, softcap: float | None) -> npt.NDArray:
        """Document tokens (n,) int64, rising, of the blocks that a question looks at most sharply.

        Args:
            queries: of each scoring layer (1, num_heads, n, head_dim) before RoPE.
            num_blocks: that many blocks at most.
        """
        if not self._keys:
            return np.empty(0, np.int64)
        keys = self._merged()
        votes = torch.zeros(keys.shape[0])
        for index, query in enumerate(queries):
            layer = keys[:, index].permute(1, 0, 2)[None].to(query)
            votes += attention_votes(query, layer, scale=scale, softcap=softcap)[0].cpu()
        blocks = [
            (first, min(first + BLOCK_TOKENS, stop))
            for start, stop in self._stretches
            for first in range(start, stop, BLOCK_TOKENS)
        ]
        num_units = torch.tensor([-(-(stop - start) // UNIT_TOKENS) for start, stop in blocks])
        block_of = torch.arange(len(blocks)).repeat_interleave(num_units)
        scores = torch.zeros(len(blocks)).scatter_reduce_(0, block_of, votes, "amax")
        chosen = scores.topk(min(num_blocks, len(blocks))).indices.sort().values
        return np.concatenate([np.arange(*blocks[block]) for block in chosen.tolist()])

    def state(self) -> dict[str, Tensor]:
        """All of it, by name; empty where nothing was added."""
        if not self._keys:
            return {}
        return {"memory.keys": self._merged(), "memory.stretches": torch.tensor(self._stretches)}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Take over what `state` of another one gave."""
        if "memory.keys" in state:
            self._keys = [state["memory.keys"]]
            self._stretches = [(start, stop) for start, stop in state["memory.stretches"].tolist()]

    def _merged(self) -> Tensor:
        """The keys of all stretches; they are joined once, and no question copies them again."""
        if len(self._keys) > 1:
            self._keys = [torch.cat(self._keys)]
        return self._keys[0]
