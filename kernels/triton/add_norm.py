"""The Triton kernel of `add_norm_`: each number is read once, and written once as a sum and once normed."""

# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from ondevice.kernels.triton.tiles import power_of_two
from torch import Tensor


def add_and_norm(
    x: Tensor, residual: Tensor, weight: Tensor, eps: float, before: tuple[Tensor, float] | None
) -> tuple[Tensor, Tensor]:
    """Launch the kernel; as `add_norm_`, norms as weight and eps, with the sum in the memory of `x`."""
    size = x.shape[-1]
    residual, normed = residual.contiguous(), torch.empty_like(x)
    assert x.is_contiguous()
    assert x.shape == residual.shape
    before_weight, before_eps = before or (weight, eps)
    assert weight.is_contiguous()
    assert before_weight.is_contiguous()
    add_norm_kernel[(x.numel() // size,)](
        x,
        residual,
        weight,
        before_weight,
        normed,
        eps,
        before_eps,
        SIZE=size,
        PADDED_SIZE=power_of_two(size),
        HAS_BEFORE=before is not None,
        num_warps=num_warps(size),
    )
    return x, normed


def num_warps(size: int) -> int:
    """Of a program for a row of `size` numbers: some 16 numbers for each thread."""
    return min(max(power_of_two(size) // 512, 1), 16)


@triton.jit
def add_norm_kernel(  # type: ignore[no-untyped-def]  # the arguments have the types of the call
    x_ptr,
    residual_ptr,
    weight_ptr,
    before_weight_ptr,
    normed_ptr,
    eps,
    before_eps,
    SIZE: tl.constexpr,
    PADDED_SIZE: tl.constexpr,
    HAS_BEFORE: tl.constexpr,
):
    """A program for each row."""
    place = tl.arange(0, PADDED_SIZE)
    mask = place < SIZE
    # 64 bits: a long pass has more numbers than 32 bits count.
    at = tl.program_id(0).to(tl.int64) * SIZE + place
    x = tl.load(x_ptr + at, mask=mask, other=0.0)
    residual = tl.load(residual_ptr + at, mask=mask, other=0.0).to(tl.float32)
    weight = tl.load(weight_ptr + place, mask=mask, other=0.0).to(tl.float32)
    branch = x.to(tl.float32)
    if HAS_BEFORE:
        before = tl.load(before_weight_ptr + place, mask=mask, other=0.0).to(tl.float32)
        branch = branch * tl.rsqrt(tl.sum(branch * branch, axis=0) / SIZE + before_eps) * before
        branch = branch.to(x.dtype).to(tl.float32)  # rounded where torch rounds
    total = (branch + residual).to(x.dtype)
    tl.store(x_ptr + at, total, mask=mask)
    wide = total.to(tl.float32)
    normed = wide * tl.rsqrt(tl.sum(wide * wide, axis=0) / SIZE + eps) * weight
    tl.store(normed_ptr + at, normed.to(x.dtype), mask=mask)
