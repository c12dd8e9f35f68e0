"""The gated delta rule: attention whose state has a fixed size, with the short convolution before it and its norm.

Equation 10 of Gated Delta Networks (arXiv 2412.06464) as Qwen3.5 uses it: S = a S + k (b (v - a S^T k))^T, and S^T q.
"""

from __future__ import annotations

import torch
from ondevice.kernels.backend import uses_numba
from ondevice.kernels.delta_weights import DeltaRule
from torch import Tensor


def has_kernel(x: Tensor, rule: DeltaRule) -> bool:
    """True if a kernel runs the rule for such inputs; else it is left to who has another way."""
    if not uses_numba(x) or x.dtype != torch.float32:
        return False
    from ondevice.kernels.cpu import delta_rule

    return delta_rule.suits(rule)


def prepare_delta_rule(rule: DeltaRule) -> None:
    """Compile what `delta_rule` needs; later processes find it in Numba's cache."""
    if has_kernel(rule.taps, rule):
        from ondevice.kernels.cpu.delta_rule import compiled

        compiled(rule.key_dim, rule.value_dim)


def delta_rule(
    mixed: Tensor, gate: Tensor, steps: Tensor, strengths: Tensor, inputs: Tensor, state: Tensor, rule: DeltaRule
) -> tuple[Tensor, Tensor]:
    """Run tokens through the rule, where `has_kernel` holds.

    Args:
        mixed: (batch, n, channels) float32, contiguous: queries, keys and values before the convolution.
        gate: (batch, n, num_value_heads * value_dim), contiguous; multiplies the output, through a SiLU.
        steps, strengths: (batch, n, num_value_heads), contiguous, before softplus and sigmoid.
        inputs: (batch, num_taps, channels), those of the convolution before these, contiguous.
        state: (batch, num_value_heads, key_dim, value_dim), contiguous; stays as it is.

    Returns:
        (batch, n, num_value_heads * value_dim), and the state after these tokens.
    """
    # Imported here: Numba is loaded by those who compile.
    from ondevice.kernels.cpu.delta_rule import run

    return run(mixed, gate, steps, strengths, inputs, state, rule)
