"""What the speculator remembers of all it has read: mean keys, by which a later question finds what was skipped.

A block of the document is scored by the best of its units, as in SlimInfer. Keys are those before RoPE: where a unit
stood says nothing about what it holds. The memory grows with the document: for every eight tokens a key in 16 bits in
each KV head of each scoring layer.
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
        self._keys: list[Tensor] = []  # of each stretch (num_units, num_layers, num_kv_heads, head_dim)
        self._starts: list[Tensor] = []  # of each stretch (num_units, 2) int32: first token and first beyond
        self._blocks: list[Tensor] = []  # of each stretch (num_units,) int64: the number of its block
        self._num_blocks = 0

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for tensors in (self._keys, self._starts, self._blocks) for tensor in tensors)

    def add(self, keys: Sequence[Tensor], start: int) -> None:
        """Take in a stretch.

        Args:
            keys: of each scoring layer (1, num_kv_heads, n, head_dim) before RoPE.
            start: document token at which it begins.
        """
        num_tokens = keys[0].shape[2]
        units = [torch.stack([unit.mean(dim=2)[0] for unit in layer.split(UNIT_TOKENS, dim=2)]) for layer in keys]
        first = torch.arange(0, num_tokens, UNIT_TOKENS, dtype=torch.int32)
        beyond = (first + UNIT_TOKENS).clamp(max=num_tokens)
        self._keys.append(torch.stack(units, dim=1).to("cpu", _DTYPE))
        self._starts.append(torch.stack((first, beyond), dim=1) + start)
        self._blocks.append(first.long() // BLOCK_TOKENS + self._num_blocks)
        self._num_blocks += -(-num_tokens // BLOCK_TOKENS)

    def best(self, queries: Sequence[Tensor], num_blocks: int, *, scale: float, softcap: float | None) -> npt.NDArray:
        """Document tokens (n,) int64, rising, of the blocks that a question looks at most sharply.

        Args:
            queries: of each scoring layer (1, num_heads, n, head_dim) before RoPE.
            num_blocks: that many blocks at most.
        """
        if not self._keys:
            return np.empty(0, np.int64)
        keys, places = torch.cat(self._keys), torch.cat(self._starts)
        votes = torch.zeros(keys.shape[0])
        for index, query in enumerate(queries):
            layer = keys[:, index].permute(1, 0, 2)[None].to(query)
            votes += attention_votes(query, layer, scale=scale, softcap=softcap)[0].cpu()
        block_of = torch.cat(self._blocks)
        scores = torch.zeros(self._num_blocks).scatter_reduce_(0, block_of, votes, "amax")
        chosen = scores.topk(min(num_blocks, self._num_blocks)).indices
        wanted = places[torch.isin(block_of, chosen)].tolist()
        return np.concatenate([np.arange(start, stop) for start, stop in wanted])

    def state(self) -> dict[str, Tensor]:
        """All of it, by name; empty where nothing was added."""
        if not self._keys:
            return {}
        parts = {"keys": self._keys, "places": self._starts, "blocks": self._blocks}
        return {f"memory.{name}": torch.cat(tensors) for name, tensors in parts.items()}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Take over what `state` of another one gave."""
        if "memory.keys" in state:
            self._keys, self._starts = [state["memory.keys"]], [state["memory.places"]]
            self._blocks = [state["memory.blocks"]]
            self._num_blocks = int(state["memory.blocks"].max()) + 1
