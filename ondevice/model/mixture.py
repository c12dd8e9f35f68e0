"""A mixture of experts: each token goes through a few of many feed-forward networks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Op = Callable[[Tensor], Tensor]


def mixture(
    tokens: Tensor, taken: Tensor, weights: Tensor, gate_up: Sequence[Op], down: Sequence[Op], activate: Op
) -> Tensor:
    """The weighted sum of what the experts of each token give, (n, hidden_size).

    Args:
        tokens: (n, hidden_size).
        taken: (n, num_taken) int64, the experts of each token.
        weights: (n, num_taken), of `taken`.
        gate_up, down: both projections of each expert.
        activate: what lies between them.
    """
    out = torch.zeros_like(tokens)
    for expert in taken.unique().tolist():
        rows, places = (taken == expert).nonzero(as_tuple=True)
        mixed = down[expert](activate(gate_up[expert](tokens[rows])))
        out.index_add_(0, rows, mixed * weights[rows, places, None])
    return out
