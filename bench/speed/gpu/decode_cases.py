"""Cases in which the Triton kernels of decode attention are compared with their reference; see `kernel_cases`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from ondevice.kernels.decode_attention import used_attention
from torch import Tensor

from ondevice_bench.speed.choosing import choosing
from ondevice_bench.speed.gpu.kernel_case import TOLERANCES, KernelCase, error_of
from ondevice_bench.speed.references import attention_ref

# batch, num_heads, num_kv_heads, num_queries, num_slots, capacity, head_dim, block_size
_DECODE = [
    (1, 2, 2, 1, 1, 8, 64, 64),
    (1, 9, 3, 1, 300, 320, 64, 16),
    (2, 8, 2, 1, 129, 129, 80, 32),
    (1, 18, 1, 1, 200, 256, 64, 64),
    (1, 20, 4, 1, 90, 90, 32, 24),  # a block that is no power of two
    (1, 4, 1, 1, 520, 520, 128, 128),  # tiles smaller than the block
]


def decode_cases() -> Iterator[KernelCase]:
    """All of them."""
    for shape in _DECODE:
        for splits in (1, 3) if shape[4] > 100 else (1,):
            error = partial(_decode_error, shape, torch.float32, splits)
            yield KernelCase("decode_attention", f"{shape} {splits} splits", TOLERANCES[torch.float32], error)
    for dtype in (torch.bfloat16, torch.float16):
        for splits in (1, 4):
            error = partial(_decode_error, _DECODE[1], dtype, splits)
            yield KernelCase("decode_attention", f"{splits} splits {dtype}", TOLERANCES[dtype], error)
    for num_used in (1, 64, 100, 129):
        for splits in (1, 3):
            error = partial(_decode_error, _DECODE[2], torch.float32, splits, num_used=num_used)
            yield KernelCase("decode_attention", f"{num_used} slots used, {splits} splits", 1e-5, error)
    yield KernelCase("decode_attention", "as the operation is called", 1e-5, _decode_call_error)


def _decode_inputs(shape: tuple[int, ...], dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Query, and views of the first slots of larger keys and values."""
    batch, num_heads, num_kv_heads, num_queries, num_slots, capacity, head_dim, _ = shape
    generator = torch.Generator().manual_seed(sum(shape))
    query = torch.randn(batch, num_heads, num_queries, head_dim, generator=generator).to(dtype)
    keys, values = torch.randn(2, batch, num_kv_heads, capacity, head_dim, generator=generator).to(dtype)
    return query, keys[:, :, :num_slots], values[:, :, :num_slots]


def _moved(tensor: Tensor, device: torch.device) -> Tensor:
    """On the device with the same strides: what is a view stays one."""
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=device).copy_(tensor)


def _decode_error(
    shape: tuple[int, ...], dtype: torch.dtype, splits: int, device: torch.device, *, num_used: int | None = None
) -> float:
    """The kernel with a given number of splits against its reference; None: all slots are used."""
    from ondevice.kernels.triton.decode_attention import attend

    query, keys, values = _decode_inputs(shape, dtype)
    count = keys.shape[2] if num_used is None else num_used
    used = torch.tensor([count], dtype=torch.int32, device=device)
    moved = (_moved(tensor, device) for tensor in (query, keys, values))
    out = attend(*moved, used, scale=0.2, block_size=shape[7], num_splits=splits)
    expected = attention_ref(query.float(), keys[:, :, :count].float(), values[:, :, :count].float(), scale=0.2)
    return error_of(out, expected, dtype)


def _decode_call_error(device: torch.device) -> float:
    query, keys, values = (tensor.to(device) for tensor in _decode_inputs(_DECODE[2], torch.float32))
    used = torch.tensor([keys.shape[2]], dtype=torch.int32, device=device)
    with choosing("KERNELS_IMPL", "triton"):
        out = used_attention(query, keys, values, used, scale=0.2)
    return error_of(out, attention_ref(query.cpu(), keys.cpu(), values.cpu(), scale=0.2), torch.float32)
