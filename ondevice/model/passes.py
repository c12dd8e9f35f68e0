"""Inputs, options and results of forward passes; the passes themselves are those of `decoder`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypedDict

from torch import Tensor

from ondevice.kernels.attention import attention
from ondevice.kernels.coded_attention import coded_attention
from ondevice.kernels.codes import Coded
from ondevice.pot.host.hidden_tier import DroppedStates
from ondevice.pot.memory_pot import Victims
from ondevice.pot.shape import PROMPT


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
            query: (1, heads, n, dim) after RoPE.
            keys: (1, kv_heads, n, dim) after RoPE, of the pass.
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


class OptionFields(TypedDict, total=False):
    """Keyword arguments of `Decoder.forward`: the fields of `Options`."""

    origin: Tensor | int
    num_transient: int
    num_observed: int
    observes_peak: bool
    offsets: Tensor | None
    span: int
    pruning: Pruner | None
    keeps_queries: bool
    keeps_dropped: bool
    attention: DecodeAttention | None
    is_stopped: Callable[[], bool] | None


@dataclass(frozen=True, slots=True)
class Options:
    """Options of one pass.

    Attributes:
        origin: document tokens (n - num_transient,) int32 of what stays, or `PROMPT`; with `offsets` (span,).
        num_transient: last tokens that are computed but do not stay in the pot (the catalyst).
        num_observed: last queries whose attention is summed into `Pass.mass`.
        observes_peak: put the most attention that any of them pays there, instead of the sum.
        offsets: (n - num_transient,) int64, rising: the tokens that stay stand at these places of a stretch of
            `span` tokens, whose others are skipped; positions count those, too. None: nothing is skipped.
        pruning: lets fewer tokens go on after some layers (batch 1); None: all go through all layers.
        keeps_queries: fill `Pass.queries`.
        keeps_dropped: fill `Pass.dropped` with what `pruning` drops.
        attention: of one token that sees all slots; None: plain attention. It is not used where a mask is
            needed, keys are rotated as they are read, or attention is observed.
        is_stopped: polled before every layer.
    """

    origin: Tensor | int = PROMPT
    num_transient: int = 0
    num_observed: int = 0
    observes_peak: bool = False
    offsets: Tensor | None = None
    span: int = 0
    pruning: Pruner | None = None
    keeps_queries: bool = False
    keeps_dropped: bool = False
    attention: DecodeAttention | None = None
    is_stopped: Callable[[], bool] | None = None


class PassStopped(Exception):
    """A forward pass was stopped between two layers; the pot is as it was before the pass."""


@dataclass(frozen=True, slots=True)
class Pass:
    """The results of one forward pass.

    Attributes:
        hidden_states: (batch, n, hidden_size) after the final norm, for every token that reached the last layer.
        mass: for each layer (batch, kv_heads, num_cached), float32: the attention that the observed queries
            paid to each slot that stays; empty when nothing was observed.
        offsets: for each layer which of the tokens that stay it was given, (n,) int64, counted in the stretch where
            some are skipped; None: all of them. Those of the last layer are first in `hidden_states`; the transient
            ones follow.
        queries: for each layer (batch, heads, n, dim) before RoPE; empty where they are not kept.
        dropped: what pruning dropped, step after step, its tokens offsets in the pass; empty where it is not kept.
    """

    hidden_states: Tensor
    mass: list[Tensor]
    offsets: list[Tensor] | None = None
    queries: Sequence[Tensor] = ()
    dropped: Sequence[DroppedStates] = ()
