"""Cases in which the Triton kernels around the products of a layer are compared with their references; see
`kernel_cases`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product

import torch
import torch.nn.functional as F
from ondevice.kernels.backend import is_interpreted
from ondevice.kernels.gated import gated, gelu_tanh
from ondevice.kernels.int4 import Int4Rows, Int4Weight, pack_int4, widened, widened_ref
from ondevice.kernels.norm import RMSNorm, add_norm_
from ondevice.kernels.projection import project
from torch import Tensor

from ondevice_bench.speed.choosing import choosing
from ondevice_bench.speed.gpu.kernel_case import TOLERANCES, KernelCase, error_of
from ondevice_bench.speed.references import add_norm_ref, gated_ref, project_ref

_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
# Batch, tokens and hidden size; sizes of models, and such as are no powers of two.
_NORMED = [(1, 1, 576), (1, 1, 4096), (1, 5, 80), (2, 3, 1536), (1, 2, 3)]
# Outputs and inputs of a weight in four bits; one, two and four words to a thread.
_INT4 = [(8, 32), (24, 64), (40, 1536), (16, 4864)]
_MULTIPLIED = (1, 16, 64, 65)  # tokens
# As for the norms, with the size of the network; blocks that end within, on and after a row.
_GATED = [(1, 1, 1536), (1, 7, 100), (2, 3, 1024), (1, 2, 4864), (1, 3, 1)]


def layer_cases() -> Iterator[KernelCase]:
    """All of them."""
    for dtype, shape, has_before in product(_DTYPES, _NORMED, (False, True)):
        name = f"{shape}{' normed before' if has_before else ''} {dtype}"
        tolerance = TOLERANCES[dtype] * (1 + has_before)  # rounded once more on the way
        yield KernelCase("add_norm", name, tolerance, partial(_norm_error, shape, has_before, dtype))
    for dtype, shape, activation in product(_DTYPES, _GATED, (F.silu, gelu_tanh)):
        error = partial(_gated_error, shape, activation, dtype)
        yield KernelCase("gated", f"{shape} {activation.__name__} {dtype}", TOLERANCES[dtype], error)
    for size in _INT4:
        # Triton's interpreter cuts off where a GPU rounds.
        tolerance = 8e-3 if is_interpreted() else 1e-9
        yield KernelCase("int4, made wide", f"{size}", tolerance, partial(_widened_error, size))
        for num_tokens in _MULTIPLIED:
            error = partial(_product_error, size, num_tokens)
            yield KernelCase("int4 product", f"{size} {num_tokens} tokens", TOLERANCES[torch.bfloat16], error)


def _int4_weight(size: tuple[int, int], device: torch.device) -> tuple[Int4Rows, Tensor]:
    """Random rows, and their codes."""
    generator = torch.Generator().manual_seed(sum(size))
    codes = torch.randint(0, 16, size, generator=generator, dtype=torch.uint8).to(device)
    scales, zeros = (0.1 * torch.randn(2, size[0], size[1] // 32, generator=generator)).to(device)
    (rows,) = pack_int4(codes, scales, zeros).parts
    assert isinstance(rows, Int4Rows)
    return rows, codes


def _widened_error(size: tuple[int, int], device: torch.device) -> float:
    """Also of some rows of more; and the codes have to lie as torch lays them, where it can."""
    rows, codes = _int4_weight(size, device)
    if device.type == "cuda":
        pairs = codes[:, 0::2] << 4 | codes[:, 1::2]
        if not torch.equal(torch.ops.aten._convert_weight_to_int4pack(pairs, 2 * rows.codes.shape[3]), rows.codes):
            return math.inf
    some = rows.between(size[0] - 8, size[0])
    with choosing("KERNELS_IMPL", "triton"):
        pairs_of = [(widened(one), widened_ref(one)) for one in (rows, some)]
    return max(error_of(out, expected, torch.bfloat16) for out, expected in pairs_of)


def _product_error(size: tuple[int, int], num_tokens: int, device: torch.device) -> float:
    rows, _ = _int4_weight(size, device)
    generator = torch.Generator().manual_seed(num_tokens)
    x = (torch.randn(num_tokens, size[1], generator=generator) * size[1] ** -0.5).to(device, torch.bfloat16)
    with choosing("KERNELS_IMPL", "triton"):
        out = project(x, Int4Weight((rows,)))
    return error_of(out, project_ref(x, Int4Weight((rows,))), torch.bfloat16)


def _norm_error(shape: tuple[int, int, int], has_before: bool, dtype: torch.dtype, device: torch.device) -> float:
    generator = torch.Generator().manual_seed(sum(shape))
    x, residual = (3 * torch.randn(2, *shape, generator=generator)).to(device, dtype)
    norms = [RMSNorm((1 + torch.randn(shape[-1], generator=generator)).to(device, dtype), eps) for eps in (1e-6, 1e-5)]
    before = norms[1] if has_before else None
    expected = add_norm_ref(x, residual, norms[0], before)
    untouched = residual.clone()
    with choosing("KERNELS_IMPL", "triton"):
        outs = add_norm_(x, residual, norms[0], before)
    if not torch.equal(residual, untouched):
        return math.inf
    return max(error_of(out, one, dtype) for out, one in zip(outs, expected, strict=True))


def _gated_error(
    shape: tuple[int, int, int], activation: Callable[[Tensor], Tensor], dtype: torch.dtype, device: torch.device
) -> float:
    batch, num_tokens, size = shape
    generator = torch.Generator().manual_seed(sum(shape))
    both = (4 * torch.randn(batch, num_tokens, 2 * size, generator=generator)).to(device, dtype)
    with choosing("KERNELS_IMPL", "triton"):
        out = gated(both, activation)
    return error_of(out, gated_ref(both, activation), dtype)
