"""Experts of transformers' modules, whose weights lie in one tensor of three dimensions, as plain callables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from ondevice.model.families.parts import Experts, Linear, Op


def experts_of(router: Any, experts: Any, config: Any, activate: Op, *, is_transposed: bool = False) -> Experts:
    """The experts of one layer.

    Args:
        router: a module with a weight (num_experts, hidden_size), and a bias if it has one.
        experts: a module with `gate_up_proj` and `down_proj`, and their biases if it has some.
        activate: as of `Experts`.
        is_transposed: its weights are (num_experts, in_features, out_features).
    """
    weight, bias = router.weight.detach(), getattr(router, "bias", None)
    return Experts(
        router=Linear(weight, None if bias is None else bias.detach()),
        num_taken=config.num_experts_per_tok,
        gate_up=_linears(experts, "gate_up_proj", is_transposed=is_transposed),
        down=_linears(experts, "down_proj", is_transposed=is_transposed),
        activate=activate,
    )


def gate_silu(gate_up: Tensor) -> Tensor:
    """SiLU of the first half, times the second."""
    gate, up = gate_up.chunk(2, dim=-1)
    return F.silu(gate).mul_(up)


def _linears(experts: Any, name: str, *, is_transposed: bool) -> Sequence[Linear]:
    """A projection of each expert; no weight is copied."""
    weights, biases = getattr(experts, name), getattr(experts, f"{name}_bias", None)
    if isinstance(weights, Tensor):
        weights = weights.detach().transpose(1, 2) if is_transposed else weights.detach()
    biases = [None] * len(weights) if biases is None else biases.detach()
    return [Linear(weight, bias) for weight, bias in zip(weights, biases, strict=True)]
