"""Cases in which the Triton kernels of decode attention are compared with their reference; see `kernel_cases`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from ondevice.kernels.decode_attention import decode_attention
from ondevice.kernels.termination import Termination
from torch import Tensor

from ondevice_bench.speed.choosing import choosing
from ondevice_bench.speed.gpu.kernel_case import TOLERANCES, KernelCase, error_of
from ondevice_bench.speed.references import attention_ref, decode_attention_ref

_RACES = 50  # runs of a case whose outcome depends on which program is ahead
# batch, num_heads, num_kv_heads, num_queries, num_slots, capacity, head_dim, block_size
_DECODE = [
    (1, 2, 2, 1, 1, 8, 64, 64),
    (1, 9, 3, 1, 300, 320, 64, 16),
    (2, 8, 2, 1, 129, 129, 80, 32),
    (1, 18, 1, 1, 200, 256, 64, 64),
    (1, 20, 4, 1, 90, 90, 32, 24),  # a block that is no power of two
    (1, 4, 1, 1, 520, 520, 128, 128),  # tiles smaller than the block
]
_RULES = {
    "no end": None,
    "absolute": Termination(tau=0.3, phi=0.1, patience=2),
    "relative": Termination(tau=0.5, phi=0.2, patience=1, is_relative=True),
    "by head": Termination(tau=(0.2, 0.5, 0.1, 0.4), phi=0.2, patience=1, is_relative=True),
    "patience=inf": Termination(tau=1.0, phi=1.0, patience=math.inf),
}
_NEVER_ENDS = ("no end", "patience=inf")


def decode_cases() -> Iterator[KernelCase]:
    """All of them."""
    for shape in _DECODE:
        for rule in _RULES:
            for is_shuffled in (False, True):
                name = f"{shape} {rule}{' shuffled' if is_shuffled else ''}"
                one = partial(_decode_error, shape, rule, is_shuffled, torch.float32, 1)
                yield KernelCase("decode_attention", name, TOLERANCES[torch.float32], one)
                if rule in _NEVER_ENDS and shape[4] > 100:
                    several = partial(_decode_error, shape, rule, is_shuffled, torch.float32, 3)
                    yield KernelCase("decode_attention", f"{name} 3 splits", TOLERANCES[torch.float32], several)
    for dtype in (torch.bfloat16, torch.float16):
        for rule in _NEVER_ENDS:
            for splits in (1, 4):
                error = partial(_decode_error, _DECODE[1], rule, True, dtype, splits)
                yield KernelCase("decode_attention", f"{rule} {splits} splits {dtype}", TOLERANCES[dtype], error)
    for splits in (1, 2, 5, 16):
        for dtype in (torch.float32, torch.bfloat16):
            error = partial(_decode_convergence_error, splits, dtype)
            tolerance = 2e-3 if dtype == torch.float32 else TOLERANCES[dtype]
            yield KernelCase("decode_attention", f"converging, {splits} splits {dtype}", tolerance, error)
    for num_used in (1, 64, 100, 129):
        for splits in (1, 3):
            error = partial(_decode_used_error, num_used, splits)
            yield KernelCase("decode_attention", f"{num_used} slots used, {splits} splits", 1e-5, error)
    yield KernelCase("decode_attention", "as the operation is called", 1e-5, _decode_call_error)


def _decode_inputs(shape: tuple[int, ...], dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Query, and views of the first slots of larger keys and values."""
    batch, num_heads, num_kv_heads, num_queries, num_slots, capacity, head_dim, _ = shape
    generator = torch.Generator().manual_seed(sum(shape))
    query = torch.randn(batch, num_heads, num_queries, head_dim, generator=generator).to(dtype)
    keys, values = torch.randn(2, batch, num_kv_heads, capacity, head_dim, generator=generator).to(dtype)
    return query, keys[:, :, :num_slots], values[:, :, :num_slots]


def _shuffled_order(shape: tuple[int, ...]) -> Tensor:
    generator, num_blocks = torch.Generator().manual_seed(1), -(-shape[4] // shape[7])
    rows = [torch.randperm(num_blocks, generator=generator) for _ in range(shape[0] * shape[2])]
    return torch.stack(rows).view(shape[0], shape[2], num_blocks).int()


def _attend(inputs: tuple[Tensor, ...], device: torch.device, num_splits: int, **options: Any) -> tuple[Tensor, Tensor]:
    """The kernel with a given number of splits, on a device."""
    from ondevice.kernels.triton.decode_attention import attend

    options = {name: value.to(device) if isinstance(value, Tensor) else value for name, value in options.items()}
    query, keys, values = (_moved(tensor, device) for tensor in inputs)
    return attend(query, keys, values, num_splits=num_splits, **options)


def _moved(tensor: Tensor, device: torch.device) -> Tensor:
    """On the device with the same strides: what is a view stays one."""
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=device).copy_(tensor)


def _options(scale: float, block_size: int, rule: str, num_kv_heads: int = 2) -> dict[str, Any]:
    termination = _RULES[rule]
    if termination is not None and isinstance(termination.tau, tuple):
        termination = replace(termination, tau=termination.tau[:num_kv_heads])
    return {"scale": scale, "block_size": block_size, "termination": termination, "order": None}


def _decode_error(
    shape: tuple[int, ...], rule: str, is_shuffled: bool, dtype: torch.dtype, splits: int, device: torch.device
) -> float:
    inputs, options = _decode_inputs(shape, dtype), _options(0.2, shape[7], rule, shape[2])
    options["order"] = _shuffled_order(shape) if is_shuffled else None
    out, blocks_read = _attend(inputs, device, splits, **options)
    expected, blocks = decode_attention_ref(*(tensor.float() for tensor in inputs), **options)
    return error_of(out, expected, dtype) if torch.equal(blocks_read.cpu(), blocks) else math.inf


def converging_inputs(num_slots: int, dtype: torch.dtype, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Two KV heads of two query heads each, whose attention lies on a few of the newest slots and on the first."""
    generator = torch.Generator().manual_seed(seed)
    query = torch.randn(1, 4, 1, 64, generator=generator)
    keys, values = torch.randn(2, 1, 2, num_slots, 64, generator=generator)
    wanted = query.view(1, 2, 2, 64).sum(dim=2)  # both query heads of a KV head look there
    for slot in (0, num_slots - 7, num_slots - 40, num_slots - 90):
        keys[:, :, slot] = wanted * 1.5
    return query.to(dtype), keys.to(dtype), values.to(dtype)


def _decode_convergence_error(splits: int, dtype: torch.dtype, device: torch.device) -> float:
    """Against all slots: not all blocks are read, and what is left out is no loss.

    Again and again: how far each split is when another looks at it differs from run to run.
    """
    # The interpreter runs one split after the other, so that only the last can end early: few blocks are enough.
    slots = 1280 * splits if device.type == "cuda" else max(320, 96 * splits)
    inputs = converging_inputs(slots, dtype)
    rule = Termination(tau=1e-3, phi=1e-3, patience=4, is_relative=True)
    options = _options(0.3, 16, "no end") | {"termination": rule}
    expected, worst = attention_ref(*(tensor.float() for tensor in inputs), scale=0.3), 0.0
    for _ in range(_RACES if device.type == "cuda" else 1):
        out, blocks_read = _attend(inputs, device, splits, **options)
        if int(blocks_read.max()) >= slots // 16:
            return math.inf
        worst = max(worst, error_of(out, expected, dtype))
    return worst


def _decode_used_error(num_used: int, splits: int, device: torch.device) -> float:
    inputs, options = _decode_inputs(_DECODE[2], torch.float32), _options(0.2, 32, "no end")
    out, blocks_read = _attend(inputs, device, splits, num_used=torch.tensor([num_used], dtype=torch.int32), **options)
    query, keys, values = inputs
    expected = attention_ref(query, keys[:, :, :num_used], values[:, :, :num_used], scale=0.2)
    same = bool((blocks_read == -(-num_used // 32)).all())
    return error_of(out, expected, torch.float32) if same else math.inf


def _decode_call_error(device: torch.device) -> float:
    query, keys, values = (tensor.to(device) for tensor in _decode_inputs(_DECODE[2], torch.float32))
    with choosing("KERNELS_IMPL", "triton"):
        out, blocks_read = decode_attention(query, keys, values, scale=0.2, block_size=32)
    expected = attention_ref(query.cpu(), keys.cpu(), values.cpu(), scale=0.2)
    return error_of(out, expected, torch.float32) if bool((blocks_read == 5).all()) else math.inf
