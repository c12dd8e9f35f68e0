"""The weights of a gated delta rule."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

NUM_TAPS = 4  # inputs that a kernel's convolution reaches
TINY = 1e-6  # under the root that queries and keys are divided by


@dataclass(frozen=True, slots=True)
class DeltaRule:
    """The weights of a layer, all float32, and the sizes of its heads.

    Attributes:
        taps: (num_taps, channels), the oldest input first; channels are queries, keys and values, head by head.
        decay: (num_value_heads,), the speed of forgetting, above 0.
        step: (num_value_heads,), what is added to each step.
        norm: (value_dim,), of the output's norm.
        eps: under that norm's root.
    """

    taps: Tensor
    decay: Tensor
    step: Tensor
    norm: Tensor
    eps: float
    num_key_heads: int
    num_value_heads: int
    key_dim: int
    value_dim: int
