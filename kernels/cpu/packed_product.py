"""Products with packed weights on a CPU, compiled by Numba: one for few tokens, one for many.

For few tokens a group is unpacked into registers as it is read, so that every product reads the weights once from
memory. For many, 16 or 32 rows are unpacked into panels that stay in the first cache while all tokens pass by.
Activations are rounded to bytes in groups as long as those of the weights; sums are exact within a group.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import torch
from ondevice.kernels.cpu import byte_vectors
from ondevice.kernels.cpu.building import Kernel
from ondevice.kernels.cpu.calls import Call
from ondevice.kernels.cpu.packed_walk import COUNTER_BYTES, FEW, MANY, PACKED_ADDRESSES, PACKED_SIZES, ROUND, compiled
from ondevice.kernels.cpu.threads import prepare_helpers, run_in_threads
from ondevice.kernels.cpu.vectors import in_lines
from ondevice.kernels.packed import TILE_ROWS, Format, PackedRows, PackedWeight
from torch import Tensor

FEW_TOKENS = 8  # up to so many a panel does not pay
_BLOCK_BYTES = 400_000  # of activations, which stay in the second cache
_PANEL_BYTES = 16_200  # of the first cache
_SMALL = 32 * 1024  # activations that one thread rounds faster than several begin


def multiply(x: Tensor, weight: PackedWeight, bias: Tensor | None) -> Tensor:
    """x @ weight.T + bias.

    Args:
        x: (num_tokens, in_features), float32, contiguous.
        bias: (out_features,) float32.

    Returns:
        (num_tokens, out_features) float32.
    """
    num_rows, num_columns = weight.shape
    num_tokens, num_threads = x.shape[0], torch.get_num_threads()
    assert x.shape[1] == num_columns
    assert x.is_contiguous()
    assert x.dtype == torch.float32
    multiple = TILE_ROWS * (1 if num_tokens <= FEW_TOKENS else byte_vectors.tiles_at_once())
    num_padded = -(-num_rows // multiple) * multiple
    if bias is not None and bias.shape[0] != num_padded:
        bias = torch.cat((bias, bias.new_zeros(num_padded - num_rows)))
    step = _step(num_tokens)
    out = torch.empty(-(-num_tokens // step) * step, num_padded)  # what is computed of whole steps has a place
    first = 0
    for part in weight.parts:
        _multiply_part(x, part, bias, out, first, num_threads)
        first += part.num_rows
    out = out[:num_tokens]
    return out if num_padded == num_rows else out[:, :num_rows].contiguous()


def _step(num_tokens: int) -> int:
    """Number of tokens that go through a group together; those that are missing in the last step are 0."""
    return num_tokens if num_tokens <= 2 else byte_vectors.largest_step()


def _multiply_part(x: Tensor, rows: PackedRows, bias: Tensor | None, out: Tensor, first: int, num_threads: int) -> None:
    """Fill the columns of `out` from `first` on."""
    layout, memory, call = _laid_out(x, rows, bias, out, first, num_threads)
    ctypes.memset(memory.data_ptr(), 0, COUNTER_BYTES)
    for start, length in layout.missing:
        ctypes.memset(memory.data_ptr() + start, 0, length)
    run_in_threads(layout.round.run, call, 1 if x.numel() <= _SMALL else num_threads)
    run_in_threads(layout.multiply.run, call, num_threads, is_short=x.shape[0] <= FEW_TOKENS)


def calls(x: Tensor, weight: PackedWeight, bias: Tensor | None, out: Tensor, num_threads: int) -> list[Call]:
    """Calls that fill `out` (1, out_features), whole tiles, as `multiply` does for one token.

    Args:
        x, bias: as for `multiply`; `bias` may be the memory of `out`, to which the product is added then.
    """
    assert out.shape[1] == weight.shape[0]
    assert weight.shape[0] % TILE_ROWS == 0
    found, first = list[Call](), 0
    for part in weight.parts:
        layout, memory, call = _laid_out(x, part, bias, out, first, num_threads)
        arguments = np.frombuffer(bytearray(call), np.uint8)
        zeroed = memory.data_ptr(), COUNTER_BYTES
        found.append(Call(layout.round.address, arguments, zeroed=zeroed, kept=(memory, *part.tensors)))
        found.append(Call(layout.multiply.address, arguments, is_shared=True))
        first += part.num_rows
    return found


def _laid_out(
    x: Tensor, rows: PackedRows, bias: Tensor | None, out: Tensor, first: int, num_threads: int
) -> tuple[_Layout, Tensor, bytes]:
    """The layout of a product that fills the columns of `out` from `first` on, its memory, and its arguments."""
    layout = _layout(rows.form, rows.num_groups, rows.data.shape[0], x.shape[0], out.stride(0), num_threads)
    memory = torch.empty(layout.num_bytes, dtype=torch.uint8)
    address = memory.data_ptr()
    call = PACKED_ADDRESSES.pack(
        x.data_ptr(),
        address + COUNTER_BYTES,
        address + layout.scales,
        address + layout.sums,
        rows.data.data_ptr(),
        0 if rows.lower is None else rows.lower.data_ptr(),
        0 if bias is None else bias.data_ptr() + 4 * first,
        out.data_ptr() + 4 * first,
        address,
        address + layout.panels,
    )
    return layout, memory, call + layout.sizes


class _Layout(NamedTuple):
    """The common layout of products of one size: while decoding there are a hundred a token.

    Attributes:
        num_bytes: of one piece of memory: two counters, rounded activations, their scales and sums, a panel a thread.
        scales, sums, panels: where in it those begin.
        missing: where the last step begins in the first three, and its bytes, if tokens are missing in it.
        sizes: the second part of a call.
        round, multiply: the kernels.
    """

    num_bytes: int
    scales: int
    sums: int
    panels: int
    missing: tuple[tuple[int, int], ...]
    sizes: bytes
    round: Kernel
    multiply: Kernel


@lru_cache(maxsize=1024)
def _layout(
    form: Format, num_groups: int, num_tiles: int, num_tokens: int, out_stride: int, num_threads: int
) -> _Layout:
    is_few, step = num_tokens <= FEW_TOKENS, _step(num_tokens)
    num_steps = -(-num_tokens // step)
    at_once = byte_vectors.tiles_at_once()
    panel_groups = 0 if is_few else min(num_groups, _PANEL_BYTES // form.panel_bytes)
    panel_bytes = panel_groups * form.panel_bytes * at_once
    step_bytes = step * num_groups * form.group_size, 4 * step * num_groups, 4 * step * num_groups
    starts = tuple(accumulate((in_lines(num_steps * size) for size in step_bytes), initial=COUNTER_BYTES))
    lasts = ((start + (num_steps - 1) * size, size) for start, size in zip(starts, step_bytes, strict=False))
    sizes = PACKED_SIZES.pack(
        num_tokens,
        num_groups,
        num_tiles,
        out_stride * 4,
        panel_groups,
        panel_bytes,
        step * min(num_steps, max(8, _BLOCK_BYTES // (step * num_groups * form.group_size))),
        max(1, num_tiles // (8 * num_threads)),
    )
    return _Layout(
        starts[3] + num_threads * panel_bytes,
        *starts[1:],
        tuple(lasts) if num_tokens % step else (),
        sizes,
        _kernel(ROUND, form, step),
        _kernel(FEW if is_few else MANY, form, step),
    )


def prepare(weights: Iterable[PackedWeight]) -> None:
    """Compile what products with these weights need, which otherwise the first of them would wait for."""
    for form in {part.form for weight in weights for part in weight.parts}:
        for num_tokens in (1, 2, FEW_TOKENS, FEW_TOKENS + 1):
            step = _step(num_tokens)
            _kernel(ROUND, form, step)
            _kernel(FEW if num_tokens <= FEW_TOKENS else MANY, form, step)
        if form.lower == "apart":
            for stage in (ROUND, FEW):
                _kernel(stage, replace(form, lower="unread"), 1)
    prepare_helpers()


def _kernel(stage: int, form: Format, step: int) -> Kernel:
    return compiled(stage, form.number, step)
