"""The Triton kernel of `widened`: codes of four bits become weights in bfloat16, laid out row by row."""

# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from ondevice.kernels.triton.tiles import GROUP_SIZE, MIDDLE, TILE_ROWS
from torch import Tensor

_BLOCK = 256  # inputs of a tile that a program makes


def widen(codes: Tensor, factors: Tensor) -> Tensor:
    """Launch the kernel, with the parts of `Int4Rows`; as `widened`."""
    num_rows, num_columns = factors.shape[1], factors.shape[0] * GROUP_SIZE
    assert codes.is_contiguous()
    assert factors.stride()[1:] == (2, 1)
    out = torch.empty(num_rows, num_columns, dtype=torch.bfloat16, device=codes.device)
    widen_kernel[(num_rows // TILE_ROWS, -(-num_columns // _BLOCK))](
        codes,
        factors,
        out,
        num_columns,
        factors.stride(0),
        TILE_ROWS=TILE_ROWS,
        GROUP_SIZE=GROUP_SIZE,
        MIDDLE=MIDDLE,
        DEPTH=codes.shape[3],
        BLOCK=_BLOCK,
        num_warps=4,
    )
    return out


@triton.jit
def widen_kernel(  # type: ignore[no-untyped-def]  # the arguments have the types of the call
    code_ptr,
    factor_ptr,
    out_ptr,
    num_columns,
    factor_stride,
    TILE_ROWS: tl.constexpr,
    GROUP_SIZE: tl.constexpr,
    MIDDLE: tl.constexpr,
    DEPTH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """A program for some inputs of a tile of rows; where a code lies is told in `kernels.int4`."""
    tile = tl.program_id(0).to(tl.int64)
    row = tl.arange(0, TILE_ROWS)[:, None]
    column = (tl.program_id(1) * BLOCK + tl.arange(0, BLOCK))[None, :]
    mask = (row >= 0) & (column < num_columns)
    group = column // GROUP_SIZE
    lane = row * 4 + column % 8 // 2
    nibble = column % 2 * 4 + column % GROUP_SIZE // 8
    # (tiles, groups / DEPTH, lanes, DEPTH)
    first = tile * (num_columns // GROUP_SIZE) * GROUP_SIZE
    word = first + (group // DEPTH * GROUP_SIZE + lane) * DEPTH + group % DEPTH
    code = (tl.load(code_ptr + word, mask=mask, other=0) >> (nibble * 4)) & 15
    factor = factor_ptr + group.to(tl.int64) * factor_stride + (tile * TILE_ROWS + row) * 2
    scale = tl.load(factor, mask=mask, other=0.0).to(tl.float32)
    zero = tl.load(factor + 1, mask=mask, other=0.0).to(tl.float32)
    weight = (code - MIDDLE).to(tl.float32) * scale + zero
    tl.store(out_ptr + (tile * TILE_ROWS + row) * num_columns + column, weight.to(tl.bfloat16), mask=mask)
