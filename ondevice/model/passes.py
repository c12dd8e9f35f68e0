"""Inputs and results of forward passes; the passes themselves are those of `decoder`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from ondevice.kernels.attention import attention
from ondevice.kernels.coded_attention import coded_attention
from ondevice.kernels.codes import Coded
from ondevice.pot.host.hidden_tier import DroppedStates
from ondevice.pot.memory_pot import Victims


class Cache(Protocol):
    """The key-value cache of a forward pass; `MemoryPot` is one, and says what each part means."""

    num_cached: list[int]
    next_position: list[int]
    max_positions: int
    victims: Victims | None

    def append_(self, layer: int, keys: Tensor, rotated: Tensor, values: Tensor) -> tuple[Tensor, Tensor]: ...

    def commit_(
        self, num_tokens: int, origin: Tensor | int, num_transient: int = 0, offsets: Sequence[Tensor] | None = None
    ) -> None: ...

    def discard_(self, num_tokens: int) -> None: ...


class Pruner(Protocol):
    """The choices of one forward pass that lets fewer tokens go on after some layers; SlimInfer's is one."""

    def survivors(self, layer: int, query: Tensor, keys: Tensor) -> Tensor | None:
        """The tokens of the pass that go on after layer `layer`, counted from 0, (n,) int64, rising; None: all.

        Args:
            query: (1, num_heads, n, head_dim) after RoPE.
            keys: (1, num_kv_heads, n, head_dim) after RoPE, of the pass.
        """
        ...


class DecodeAttention(Protocol):
    """Attention of one token to all that a layer holds; `RunTimeTermination` is one."""

    def attend(self, layer: int, query: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor: ...

    def attend_coded(
        self, layer: int, query: Tensor, coded: Coded, positions: Tensor, table: tuple[Tensor, Tensor], scale: float
    ) -> Tensor: ...


class PlainAttention:
    """The one that reads every slot."""

    def attend(self, layer: int, query: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
        return attention(query, keys, values, scale=scale)

    def attend_coded(
        self, layer: int, query: Tensor, coded: Coded, positions: Tensor, table: tuple[Tensor, Tensor], scale: float
    ) -> Tensor:
        return coded_attention(query, coded, positions, *table, scale=scale)[0]


PLAIN = PlainAttention()


class PassStopped(Exception):
    """A forward pass was stopped between two layers; the pot is as it was before the pass."""


@dataclass(frozen=True, slots=True)
class Pass:
    """The results of one forward pass.

    Attributes:
        hidden_states: (batch, n, hidden_size) after the final norm, for every token that reached the last layer.
        mass: for each layer (batch, num_kv_heads, num_cached), float32: the attention that the observed queries
            paid to each slot that stays; empty when nothing was observed.
        offsets: for each layer which of the tokens that stay it was given, (n,) int64, counted in the stretch where
            some are skipped; None: all of them. Those of the last layer are first in `hidden_states`; the transient
            ones follow.
        queries: for each layer (batch, num_heads, n, head_dim) before RoPE; empty where they are not kept.
        dropped: what pruning dropped, step after step, its tokens offsets in the pass; empty where it is not kept.
    """

    hidden_states: Tensor
    mass: list[Tensor]
    offsets: list[Tensor] | None = None
    queries: Sequence[Tensor] = ()
    dropped: Sequence[DroppedStates] = ()
