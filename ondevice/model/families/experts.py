"""Experts of transformers' modules, whose weights lie in one tensor of three dimensions, as plain callables."""

from __future__ import annotations

from typing import Any

from ondevice.model.families.fusing import linear_of
from ondevice.model.families.parts import Experts, Linear
from ondevice.model.mixture import Op
from ondevice.model.packed_modules import EXPERT_WEIGHTS, SeparateExperts


def experts_of(router: Any, experts: Any, num_taken: int, activate: Op) -> Experts:
    """The experts of one layer; no weight is copied.

    Args:
        router: a module with a weight (num_experts, hidden_size), and a bias if it has one.
        experts: of transformers, or `SeparateExperts`.
        num_taken, activate: as of `Experts`.
    """
    bias = getattr(router, "bias", None)
    scores = Linear(router.weight.detach(), None if bias is None else bias.detach())
    if isinstance(experts, SeparateExperts):
        gate_up, down = ([*map(linear_of, modules)] for modules in (experts.gate_up, experts.down))
    else:
        gate_up, down = (_linears(experts, name) for name in EXPERT_WEIGHTS)
    return Experts(scores, num_taken, gate_up, down, activate)


def _linears(experts: Any, name: str) -> list[Op]:
    """A projection of each expert."""
    weights, biases = getattr(experts, name).detach(), getattr(experts, f"{name}_bias", None)
    weights = weights.transpose(1, 2) if experts.is_transposed else weights
    biases = [None] * len(weights) if biases is None else biases.detach()
    return [Linear(weight, bias) for weight, bias in zip(weights, biases, strict=True)]
