"""Cases in which every Triton kernel is compared with its reference: in Triton's interpreter by the tests, on a GPU by
`gpu_check`. No pytest here, so that the check needs none.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from itertools import chain, product

import torch
from ondevice.kernels.codes import Coded, Frame, encode
from ondevice.kernels.rope import rotate
from ondevice.kernels.store_token import store_codes_, store_token_
from ondevice.kernels.token_loss import token_loss
from torch import Tensor

from ondevice_bench.paged.paged_attention import paged_attention, paged_attention_ref
from ondevice_bench.speed.choosing import choosing
from ondevice_bench.speed.gpu.coded_inputs import BITS, SHAPES, coded_outputs
from ondevice_bench.speed.gpu.decode_cases import decode_cases
from ondevice_bench.speed.gpu.kernel_case import TOLERANCES, KernelCase, error_of
from ondevice_bench.speed.gpu.layer_cases import layer_cases
from ondevice_bench.speed.gpu.paged_inputs import paged_inputs
from ondevice_bench.speed.references import store_token_ref, token_loss_ref


def kernel_cases() -> list[KernelCase]:
    """All comparisons."""
    own = (_paged_cases(), _coded_cases(), _store_cases(), _store_coded_cases(), _rope_cases(), _loss_cases())
    return [*chain(*own, layer_cases(), decode_cases())]


# -- paged attention ---------------------------------------------------------------------------------

# lengths, (heads, kv_heads), head_dim, block_size
_PAGED: list[tuple[list[int], tuple[int, int], int, int]] = [
    ([1, 137], (2, 2), 64, 16),
    ([33, 0, 16], (9, 3), 64, 8),  # a sequence without slots; several tiles
    ([71], (8, 2), 80, 16),
    ([5, 64], (3, 1), 80, 8),
]


def _paged_cases() -> Iterator[KernelCase]:
    for dtype in (torch.float32, torch.bfloat16):
        for shape in _PAGED:
            name = f"{shape} {dtype}"
            yield KernelCase("paged_attention", name, TOLERANCES[dtype], partial(_paged_error, shape, dtype))


def _paged_error(shape: tuple[list[int], tuple[int, int], int, int], dtype: torch.dtype, device: torch.device) -> float:
    inputs, scale = paged_inputs(*shape, dtype), shape[2] ** -0.5
    with choosing("KERNELS_IMPL", "triton"):
        out = paged_attention(*(tensor.to(device) for tensor in inputs), scale=scale)
    query, keys, values, tables, lengths = inputs
    expected = paged_attention_ref(query.float(), keys.float(), values.float(), tables, lengths, scale=scale)
    return error_of(out, expected, dtype)


# -- attention over codes ----------------------------------------------------------------------------


def _coded_cases() -> Iterator[KernelCase]:
    for dtype, bits, shape in product((torch.float32, torch.bfloat16), BITS, SHAPES):
        for splits in (1, 3) if shape[3] > 100 else (1,):
            error = partial(_coded_error, shape, bits, dtype, splits)
            name = f"{shape} in {bits[0]} and {bits[1]} bits, {splits} splits, {dtype}"
            yield KernelCase("coded_attention", name, TOLERANCES[dtype], error)


def _coded_error(
    shape: tuple[int, ...], bits: tuple[int, int], dtype: torch.dtype, splits: int, device: torch.device
) -> float:
    return error_of(*coded_outputs(shape, bits, dtype, device, splits), dtype)


# -- a token on its way into a pot -----------------------------------------------------------------------

# num_heads, num_kv_heads, head_dim, capacity, slot
_STORE = [(4, 4, 64, 8, 0), (9, 3, 64, 40, 39), (8, 2, 80, 17, 5), (32, 8, 128, 4096, 4000)]


def _store_cases() -> Iterator[KernelCase]:
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        for shape in _STORE:
            yield KernelCase("store_token", f"{shape} {dtype}", TOLERANCES[dtype], partial(_store_error, shape, dtype))


def _store_error(shape: tuple[int, int, int, int, int], dtype: torch.dtype, device: torch.device) -> float:
    num_heads, num_kv_heads, head_dim, capacity, slot = shape
    generator = torch.Generator().manual_seed(sum(shape))

    def noise(*size: int) -> Tensor:
        return torch.randn(size, generator=generator).to(dtype).to(device)

    # As the projection gives them: heads of one row, of which queries and keys are a part.
    qkv = noise(1, 1, num_heads + 2 * num_kv_heads, head_dim).transpose(1, 2)
    new = qkv.split((num_heads + num_kv_heads, num_kv_heads), dim=1)
    angles, buffers = noise(2, 50, head_dim).unbind(), noise(3, 1, num_kv_heads, capacity, head_dim).unbind()
    where = [torch.tensor([number], dtype=torch.int32, device=device) for number in (slot, 33)]
    expected = store_token_ref(*new, *angles, *where, *buffers)
    with choosing("KERNELS_IMPL", "triton"):
        query = store_token_(*new, *angles, *where, buffers)
    pairs = zip((query, *buffers), expected, strict=True)
    return max(error_of(one, other, dtype) for one, other in pairs)


def _store_coded_cases() -> Iterator[KernelCase]:
    """One in a hundred numbers may be a step apart, where torch divides otherwise, and a scale in 16 bits a place."""
    for dtype, bits, shape in product((torch.float32, torch.bfloat16), BITS, _STORE):
        name, error = (
            f"{shape} in {bits[0]} and {bits[1]} bits {dtype}",
            partial(_store_coded_error, shape, bits, dtype),
        )
        yield KernelCase("store_codes", name, max(TOLERANCES[dtype], 1e-3 if 4 in bits else 0.0), error)


def _store_coded_error(
    shape: tuple[int, int, int, int, int], bits: tuple[int, int], dtype: torch.dtype, device: torch.device
) -> float:
    num_heads, num_kv_heads, head_dim, capacity, slot = shape
    generator = torch.Generator().manual_seed(sum(shape))
    qkv = torch.randn(1, 1, num_heads + 2 * num_kv_heads, head_dim, generator=generator).to(device, dtype)
    new = qkv.transpose(1, 2).split((num_heads + num_kv_heads, num_kv_heads), dim=1)
    angles = torch.randn(2, 50, head_dim, generator=generator).to(device, dtype).unbind()
    where = [torch.tensor([number], dtype=torch.int32, device=device) for number in (slot, 33)]
    frame = Frame(*torch.rand(2, num_kv_heads, head_dim, generator=generator).add_(0.1).to(device))
    outs = list[tuple[Tensor, Coded]]()
    for choice in ("torch", "triton"):
        keys, values = torch.zeros(2, 1, num_kv_heads, capacity, head_dim, device=device)
        (keys, key_scales), (values, value_scales) = encode(keys, bits[0]), encode(values, bits[1])
        coded = Coded(keys, values, key_scales, value_scales, frame)
        with choosing("KERNELS_IMPL", choice):
            outs.append((store_codes_(*new, *angles, *where, coded), coded))
    (expected, other), (query, own) = outs
    num_apart = 0
    for one, two in zip(own[:2], other[:2], strict=True):
        num_apart += int((one != two).sum())
        untouched = torch.ones(capacity, dtype=torch.bool, device=device)
        untouched[slot] = False
        if not torch.equal(one[:, :, untouched], two[:, :, untouched]):
            return math.inf
    if num_apart > own.keys.shape[1] * head_dim // 100:
        return math.inf
    pairs = [(query, expected), (own.key_scales, other.key_scales), (own.value_scales, other.value_scales)]
    return max(error_of(one.to(dtype), two, dtype) for one, two in pairs)


# -- rotation ------------------------------------------------------------------------------------------

# batch, heads, tokens, head_dim, rotary_dim
_TURNED = [(1, 5, 1, 64, 64), (2, 3, 17, 80, 80), (1, 40, 7, 128, 128), (2, 3, 9, 80, 32)]


def _rope_cases() -> Iterator[KernelCase]:
    for dtype, shape, own in product((torch.float32, torch.bfloat16, torch.float16), _TURNED, (False, True)):
        name, error = f"{shape}{' angles of each head' if own else ''} {dtype}", partial(_rope_error, shape, own, dtype)
        yield KernelCase("rope", name, TOLERANCES[dtype], error)


def _rope_error(
    shape: tuple[int, int, int, int, int], has_own_angles: bool, dtype: torch.dtype, device: torch.device
) -> float:
    batch, num_heads, num_tokens, head_dim, rotary_dim = shape
    generator = torch.Generator().manual_seed(sum(shape))
    # As the projection gives them: heads of one row, of which queries and keys are a part.
    x = torch.randn(batch, num_tokens, num_heads + 2, head_dim, generator=generator).to(device, dtype)
    x = x.transpose(1, 2)[:, :num_heads]
    heads = (batch, num_heads) if has_own_angles else (1, 1)
    cos, sin = torch.randn(2, *heads, num_tokens, rotary_dim, generator=generator).to(device, dtype)
    outs = []
    for choice in ("torch", "triton"):
        with choosing("KERNELS_IMPL", choice):
            outs.append(rotate(x, cos, sin))
    return error_of(outs[1], outs[0], dtype)


# -- cross-entropy -------------------------------------------------------------------------------------

# tokens, hidden_size, words, words of a slice
_LOSS = [(1, 64, 100, 64), (33, 48, 5000, 4097), (7, 128, 9000, 9000)]


def _loss_cases() -> Iterator[KernelCase]:
    for dtype in (torch.float32, torch.bfloat16):
        for softcap in (None, 5.0):
            for shape in _LOSS:
                error = partial(_loss_error, shape, softcap, dtype)
                yield KernelCase("token_loss", f"{shape} cap {softcap} {dtype}", TOLERANCES[dtype], error)


def _loss_error(
    shape: tuple[int, int, int, int], softcap: float | None, dtype: torch.dtype, device: torch.device
) -> float:
    num_tokens, hidden_size, vocab_size, slice_size = shape
    generator = torch.Generator().manual_seed(sum(shape))
    states = torch.randn(1, num_tokens, hidden_size, generator=generator).to(dtype)
    weight = (torch.randn(vocab_size, hidden_size, generator=generator) * hidden_size**-0.5).to(dtype)
    targets = torch.randint(0, vocab_size, (1, num_tokens), generator=generator)
    inputs = states.to(device), targets.to(device), weight.to(device)
    with choosing("KERNELS_IMPL", "triton"):
        out = token_loss(*inputs, softcap=softcap, slice_size=slice_size)
    return error_of(out, token_loss_ref(states, targets, weight, softcap=softcap), torch.float32)
