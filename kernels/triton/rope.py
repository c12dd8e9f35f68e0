"""The Triton kernel of `rotate` for the tokens of a pass: one launch where torch takes three."""

# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from ondevice.kernels.triton.shared import turned
from ondevice.kernels.triton.tiles import power_of_two
from torch import Tensor

_NUMBERS = 2048  # that a program turns at once


def turn(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Launch the kernel; shapes as for `rotate`, x of four dimensions."""
    batch, num_heads, num_tokens, head_dim = x.shape
    rotary_dim, out = cos.shape[-1], torch.empty_like(x)
    cos, sin = (part.contiguous().expand(*x.shape[:3], rotary_dim) for part in (cos, sin))
    if x.stride(3) != 1 or out.stride(3) != 1:
        x, out = x.contiguous(), torch.empty(x.shape, dtype=x.dtype, device=x.device)
    padded = power_of_two(head_dim)
    block = min(max(_NUMBERS // padded, 1), power_of_two(num_heads))
    rope_kernel[(num_tokens, -(-num_heads // block), batch)](
        x,
        cos,
        sin,
        out,
        *x.stride()[:3],
        *out.stride()[:3],
        *cos.stride()[:3],
        num_heads,
        ROTARY_DIM=rotary_dim,
        HEAD_DIM=head_dim,
        PADDED_DIM=padded,
        BLOCK=block,
    )
    return out


@triton.jit
def rope_kernel(  # type: ignore[no-untyped-def]  # the arguments have the types of the call
    x_ptr,
    cos_ptr,
    sin_ptr,
    out_ptr,
    batch_stride,
    head_stride,
    token_stride,
    out_batch_stride,
    out_head_stride,
    out_token_stride,
    angle_batch_stride,
    angle_head_stride,
    angle_token_stride,
    num_heads,
    ROTARY_DIM: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PADDED_DIM: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """A program for some heads of each token."""
    # 64 bits: a long pass has more numbers than 32 bits count.
    token, batch = tl.program_id(0).to(tl.int64), tl.program_id(2).to(tl.int64)
    head = (tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    dim = tl.arange(0, PADDED_DIM)[None, :]
    is_head = (head < num_heads)[:, None]
    first = x_ptr + batch * batch_stride + token * token_stride + head[:, None] * head_stride
    angle = batch * angle_batch_stride + token * angle_token_stride + head[:, None] * angle_head_stride
    _, out = turned(first, cos_ptr + angle, sin_ptr + angle, dim, is_head, ROTARY_DIM, HEAD_DIM)
    place = out_ptr + batch * out_batch_stride + token * out_token_stride + head[:, None] * out_head_stride
    tl.store(place + dim, out, mask=is_head & (dim < HEAD_DIM))
