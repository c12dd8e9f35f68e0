"""The Triton kernel under `token_loss`: log-sum-exp of rows of logits, which are read once and kept nowhere."""

# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 4096  # logits that a program holds at once


def logsumexp(logits: Tensor, softcap: float | None) -> Tensor:
    """(n, m) of any floating type -> (n,) float32; capped as in `token_loss`."""
    num_rows, num_columns = logits.shape
    assert logits.stride(1) == 1
    out = torch.empty(num_rows, dtype=torch.float32, device=logits.device)
    logsumexp_kernel[(num_rows,)](
        logits,
        out,
        softcap or 1.0,
        num_columns,
        logits.stride(0),
        BLOCK=_BLOCK,
        HAS_CAP=softcap is not None,
        num_warps=8,
    )
    return out


@triton.jit
def logsumexp_kernel(  # type: ignore[no-untyped-def]  # the arguments have the types of the call
    logit_ptr,
    out_ptr,
    softcap,
    num_columns,
    row_stride,
    BLOCK: tl.constexpr,
    HAS_CAP: tl.constexpr,
):
    """A program for each row; every place of a block keeps a maximum and a sum of its own until the end."""
    row = tl.program_id(0).to(tl.int64)
    place = tl.arange(0, BLOCK)
    maximum = tl.full([BLOCK], float("-inf"), dtype=tl.float32)
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, num_columns, BLOCK):
        mask = start + place < num_columns
        logits = tl.load(logit_ptr + row * row_stride + start + place, mask=mask, other=0.0).to(tl.float32)
        if HAS_CAP:
            logits = softcap * (2.0 / (1.0 + tl.exp(-2.0 * logits / softcap)) - 1.0)  # tanh
        logits = tl.where(mask, logits, float("-inf"))
        new_maximum = tl.maximum(maximum, logits)
        base = tl.where(new_maximum == float("-inf"), 0.0, new_maximum)
        total = total * tl.exp(maximum - base) + tl.exp(logits - base)
        maximum = new_maximum
    most = tl.max(maximum, axis=0)
    total = tl.sum(total * tl.exp(maximum - most), axis=0)
    tl.store(out_ptr + row, most + tl.log(total))
