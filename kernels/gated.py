"""The gate of a feed-forward network: activation(gate) * up, of both laid side by side by one product."""

from __future__ import annotations

from collections.abc import Callable

import torch.nn.functional as F
from ondevice.kernels.backend import uses_triton
from torch import Tensor


def gelu_tanh(x: Tensor) -> Tensor:
    """GELU by its approximation with tanh, as in Gemma-2."""
    return F.gelu(x, approximate="tanh")


_IN_ONE_KERNEL = (F.silu, gelu_tanh)


def gated(gate_up: Tensor, activation: Callable[[Tensor], Tensor]) -> Tensor:
    """activation(gate) * up.

    Args:
        gate_up: (..., 2 * size), contiguous where a GPU has it: the gate first.
        activation: `F.silu` or `gelu_tanh`; torch runs any other.

    Returns:
        (..., size), a new tensor.
    """
    if activation in _IN_ONE_KERNEL and uses_triton(gate_up):
        # Imported here: Triton is not there on every machine.
        from ondevice.kernels.triton.gated import multiply_gated

        return multiply_gated(gate_up, is_silu=activation is F.silu)
    gate, up = gate_up.chunk(2, dim=-1)
    return activation(gate).mul_(up)
