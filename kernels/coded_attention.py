"""Attention of one query over quantised keys and values: made wide, and keys rotated, block by block in a kernel."""

from __future__ import annotations

import torch
from ondevice.kernels.attention import additive_mask, attention
from ondevice.kernels.backend import uses_numba, uses_triton
from ondevice.kernels.codes import Coded
from ondevice.kernels.rope import rotate, rows_of
from ondevice.kernels.termination import Termination
from torch import Tensor

_BLOCK = 64  # slots whose wide keys stay in a first cache


def ends_early(query: Tensor, rotary_dim: int) -> bool:
    """Say whether attention over codes can end early: only the kernel for CPUs does, and it turns all of a key."""
    return not uses_triton(query) and uses_numba(query) and rotary_dim == query.shape[-1]


def coded_attention(
    query: Tensor,
    coded: Coded,
    positions: Tensor,
    cos: Tensor,
    sin: Tensor,
    *,
    scale: float,
    block_size: int = _BLOCK,
    order: Tensor | None = None,
    termination: Termination | None = None,
) -> tuple[Tensor, Tensor]:
    """Scaled dot-product attention of one token over all slots, or as many blocks of them as it takes.

    Args:
        query: (batch, heads, 1, dim), after RoPE.
        coded: keys and values.
        positions: (batch or 1, kv_heads or 1, num_slots) int32, the position of each slot.
        cos, sin: (num_positions, rotary_dim), `sin` signed as for `rotate`.
        scale, block_size, order, termination: as for `decode_attention`; all is read unless `ends_early`.

    Returns:
        The output, shape and dtype of `query`, and the blocks that were read, (batch, kv_heads) int32.
    """
    if ends_early(query, cos.shape[-1]):
        # Imported here: Numba is not there on every machine.
        from ondevice.kernels.cpu.decode_attention import Reading, attend_coded

        return attend_coded(query, coded, positions, cos, sin, Reading(scale, block_size, order, termination))
    num_used = torch.full((1,), coded.keys.shape[2], dtype=torch.int32, device=query.device)
    out = used_coded_attention(query, coded, positions, cos, sin, num_used, scale=scale)
    num_blocks = -(-coded.keys.shape[2] // block_size)
    blocks_read = torch.full(coded.keys.shape[:2], num_blocks, dtype=torch.int32, device=query.device)
    return out, blocks_read


def takes_many(query: Tensor, rotary_dim: int) -> bool:
    """Say whether a kernel reads codes for such queries, of which there are several, if all of a key turns."""
    if query.device.type != "cpu" or rotary_dim != query.shape[-1] or not uses_numba(query):
        return False
    from ondevice.kernels.cpu import causal_attention

    return causal_attention.suits_codes(query)


def causal_coded_attention(
    query: Tensor,
    coded: Coded,
    positions: Tensor,
    cos: Tensor,
    sin: Tensor,
    *,
    scale: float,
    in_bfloat16: bool = False,
) -> Tensor:
    """Causal attention of the last slots' tokens, where a kernel `takes_many`.

    Args:
        query: (batch, heads, n, dim) float32, after RoPE; query i is the token in slot num_slots - n + i.
        coded, positions, cos, sin, scale: as for `coded_attention`.
        in_bfloat16: as for `attention`.

    Returns:
        Shape and dtype of `query`.
    """
    from ondevice.kernels.cpu.causal_attention import attend_panels
    from ondevice.kernels.cpu.panels import panels_of_codes

    return attend_panels(query, panels_of_codes(coded, positions, cos, sin, in_bfloat16=in_bfloat16), scale=scale)


def used_coded_attention(
    query: Tensor, coded: Coded, positions: Tensor, cos: Tensor, sin: Tensor, num_used: Tensor, *, scale: float
) -> Tensor:
    """Attention of one token over the first slots. The host need not know how many, so that a CUDA graph can hold the
    call.

    Args:
        query, coded, positions, cos, sin, scale: as for `coded_attention`.
        num_used: (1,) int32 on the device, the slots there are.

    Returns:
        Shape and dtype of `query`.
    """
    if uses_triton(query):
        # Imported here: Triton is not there on every machine.
        from ondevice.kernels.triton.coded_attention import widen_and_attend

        return widen_and_attend(query, coded, positions, cos, sin, num_used, scale=scale)
    wide = torch.promote_types(query.dtype, torch.float32)
    keys = rotate(coded.wide_keys(wide), rows_of(cos, positions).to(wide), rows_of(sin, positions).to(wide))
    mask = additive_mask(torch.arange(keys.shape[2], device=query.device) < num_used, wide)[None, None, None]
    return attention(query.to(wide), keys, coded.wide_values(wide), scale=scale, mask=mask).to(query.dtype)
