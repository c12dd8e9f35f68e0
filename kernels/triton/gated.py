"""The Triton kernel of `gated`: one launch where torch takes two, and reads and writes the gate once more."""

# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 1024  # numbers of the output that a program makes


def multiply_gated(gate_up: Tensor, *, is_silu: bool) -> Tensor:
    """Launch the kernel; shapes as for `gated`."""
    assert gate_up.is_contiguous()
    size = gate_up.shape[-1] // 2
    out = gate_up.new_empty((*gate_up.shape[:-1], size))
    gated_kernel[(out.numel() // size, -(-size // _BLOCK))](
        gate_up, out, size, IS_SILU=is_silu, BLOCK=_BLOCK, num_warps=4
    )
    return out


@triton.jit
def gated_kernel(gate_up_ptr, out_ptr, size, IS_SILU: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """A program for each block of each row; the arguments have the types of the call."""
    # 64 bits: a long pass has more numbers than 32 bits count.
    row = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = place < size
    gate = tl.load(gate_up_ptr + row * 2 * size + place, mask=mask, other=0.0)
    up = tl.load(gate_up_ptr + row * 2 * size + size + place, mask=mask, other=0.0).to(tl.float32)
    wide = gate.to(tl.float32)
    if IS_SILU:
        activated = wide / (1.0 + tl.exp(-wide))
    else:
        inner = 0.7978845608028654 * (wide + 0.044715 * wide * wide * wide)  # sqrt(2 / pi)
        activated = wide / (1.0 + tl.exp(-2.0 * inner))  # 0.5 x (1 + tanh(inner))
    activated = activated.to(gate.dtype).to(tl.float32)  # rounded where torch rounds
    tl.store(out_ptr + row * size + place, (activated * up).to(gate.dtype), mask=mask)
