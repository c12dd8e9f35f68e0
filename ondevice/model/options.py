"""Options of a forward pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypedDict

from torch import Tensor

from ondevice.model.passes import DecodeAttention, Pruner
from ondevice.pot.shape import PROMPT


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
