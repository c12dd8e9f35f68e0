"""Cases in which every Triton kernel is compared with its reference: in Triton's interpreter by the tests, on a GPU by
`gpu_check`. No pytest here, so that the check needs none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

import torch
from torch import Tensor

from ondevice.bench.gpu.coded_inputs import SHAPES, coded_outputs
from ondevice.bench.gpu.paged_inputs import paged_inputs
from ondevice.kernels.attention import attention_ref
from ondevice.kernels.backend import choosing
from ondevice.kernels.decode_attention import decode_attention, decode_attention_ref
from ondevice.kernels.paged_attention import paged_attention, paged_attention_ref
from ondevice.kernels.rope import signed_sine
from ondevice.kernels.rope_attention import rope_attention, rope_attention_ref
from ondevice.kernels.store_token import store_token_, store_token_ref
from ondevice.kernels.termination import Termination
from ondevice.kernels.token_loss import token_loss, token_loss_ref

_RACES = 50  # runs of a case whose outcome depends on which program is ahead
TOLERANCES = {torch.float32: 1e-5, torch.bfloat16: 3e-2, torch.float16: 4e-3}


@dataclass(frozen=True, slots=True)
class KernelCase:
    """One comparison.

    Attributes:
        kernel: the name of the operation.
        name: the case, unique for the kernel.
        tolerance: what `error` may be.
        error: on a device, the largest of |difference| / (1 + |expected|); infinite where something else differs.
    """

    kernel: str
    name: str
    tolerance: float
    error: Callable[[torch.device], float]

    def __str__(self) -> str:
        return f"{self.kernel} {self.name}"


def kernel_cases() -> list[KernelCase]:
    """All comparisons."""
    return [*_paged_cases(), *_rope_cases(), *_coded_cases(), *_store_cases(), *_loss_cases(), *_decode_cases()]


def error_of(out: Tensor, expected: Tensor, dtype: torch.dtype) -> float:
    """As `KernelCase.error`; `out` has to be of `dtype` and finite."""
    if out.dtype != dtype or not bool(out.isfinite().all()):
        return math.inf
    expected = expected.float().cpu()
    return float(((out.float().cpu() - expected).abs() / (1 + expected.abs())).max())


# -- paged attention ---------------------------------------------------------------------------------

# lengths, (num_heads, num_kv_heads), head_dim, block_size
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


# -- attention over keys before RoPE -----------------------------------------------------------------

# batch, num_heads, num_kv_heads, num_slots, capacity, head_dim, rotary_dim
_ROPE = [
    (1, 2, 2, 1, 8, 64, 64),
    (2, 9, 3, 137, 160, 64, 64),
    (1, 8, 2, 71, 71, 80, 80),
    (1, 3, 1, 40, 64, 80, 32),
]


def _rope_cases() -> Iterator[KernelCase]:
    for dtype in (torch.float32, torch.bfloat16):
        for shape in _ROPE:
            for shared in (True, False):
                name = f"{shape} {'one row of' if shared else 'all'} positions {dtype}"
                error = partial(_rope_error, shape, shared, dtype)
                yield KernelCase("rope_attention", name, TOLERANCES[dtype], error)


def _rope_error(shape: tuple[int, ...], shared: bool, dtype: torch.dtype, device: torch.device) -> float:
    batch, num_heads, num_kv_heads, num_slots, capacity, head_dim, rotary_dim = shape
    generator = torch.Generator().manual_seed(sum(shape))
    query = torch.randn(batch, num_heads, 1, head_dim, generator=generator).to(dtype)
    keys, values = torch.randn(2, batch, num_kv_heads, capacity, head_dim, generator=generator).to(dtype)
    angle = torch.arange(500)[:, None] * 100.0 ** -(torch.arange(rotary_dim // 2) / rotary_dim)
    cos, sin = torch.cat((angle.cos(),) * 2, -1).to(dtype), signed_sine(torch.cat((angle.sin(),) * 2, -1)).to(dtype)
    rows = (1, 1) if shared else (batch, num_kv_heads)
    positions = torch.randint(0, 500, (*rows, num_slots), generator=generator, dtype=torch.int32)
    keys, values = keys.to(device)[:, :, :num_slots], values.to(device)[:, :, :num_slots]
    inputs = query.to(device), keys, values, positions.to(device), cos.to(device), sin.to(device)
    with choosing("KERNELS_IMPL", "triton"):
        out = rope_attention(*inputs, scale=head_dim**-0.5)
    return error_of(out, rope_attention_ref(*inputs, scale=head_dim**-0.5), dtype)


def _coded_cases() -> Iterator[KernelCase]:
    for dtype, bits, shape in product((torch.float32, torch.bfloat16), (8, 4), SHAPES):
        name, error = f"{shape} in {bits} bits {dtype}", partial(_coded_error, shape, bits, dtype)
        yield KernelCase("coded_attention", name, TOLERANCES[dtype], error)


def _coded_error(shape: tuple[int, ...], bits: int, dtype: torch.dtype, device: torch.device) -> float:
    return error_of(*coded_outputs(shape, bits, dtype, device), dtype)


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
        query = store_token_(*new, *angles, *where, *buffers)
    pairs = zip((query, *buffers), expected, strict=True)
    return max(error_of(one, other, dtype) for one, other in pairs)


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


# -- decode attention --------------------------------------------------------------------------------

# batch, num_heads, num_kv_heads, num_queries, num_slots, capacity, head_dim, block_size
_DECODE = [
    (1, 2, 2, 1, 1, 8, 64, 64),
    (1, 9, 3, 1, 300, 320, 64, 16),
    (2, 8, 2, 1, 129, 129, 80, 32),
    (1, 6, 1, 3, 200, 256, 64, 64),
    (1, 4, 4, 5, 90, 90, 32, 24),  # a block that is no power of two
    (1, 4, 1, 1, 520, 520, 128, 128),  # tiles smaller than the block
]
_RULES = {
    "no end": None,
    "absolute": Termination(tau=0.3, phi=0.1, patience=2),
    "relative": Termination(tau=0.5, phi=0.2, patience=1, is_relative=True, probe_stride=4),
    "by head": Termination(tau=(0.2, 0.5, 0.1, 0.4), phi=0.2, patience=1, is_relative=True),
    "patience=inf": Termination(tau=1.0, phi=1.0, patience=math.inf),
}
_NEVER_ENDS = ("no end", "patience=inf")


def _decode_cases() -> Iterator[KernelCase]:
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
    for rule in _RULES:
        for window in (None, 40):
            error = partial(_decode_position_error, rule, window)
            yield KernelCase("decode_attention", f"positions, window {window}, {rule}", 1e-5, error)
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
    none = dict.fromkeys(("order", "positions", "query_positions", "window"))
    return {"scale": scale, "block_size": block_size, "termination": termination, **none}


def _decode_error(
    shape: tuple[int, ...], rule: str, is_shuffled: bool, dtype: torch.dtype, splits: int, device: torch.device
) -> float:
    inputs, options = _decode_inputs(shape, dtype), _options(0.2, shape[7], rule, shape[2])
    options["order"] = _shuffled_order(shape) if is_shuffled else None
    out, blocks_read = _attend(inputs, device, splits, **options)
    expected, blocks = decode_attention_ref(*(tensor.float() for tensor in inputs), **options)
    return error_of(out, expected, dtype) if torch.equal(blocks_read.cpu(), blocks) else math.inf


def _decode_position_error(rule: str, window: int | None, device: torch.device) -> float:
    """Several queries that see what their positions allow, each KV head with positions of its own."""
    shape = (1, 4, 2, 2, 140, 140, 16, 16)
    inputs, generator = _decode_inputs(shape, torch.float32), torch.Generator().manual_seed(2)
    positions = torch.stack([torch.randperm(140, generator=generator) for _ in range(2)]).int()[None]
    options = _options(0.5, 16, rule) | {
        "positions": positions,
        "query_positions": torch.tensor([70, 120], dtype=torch.int32),
        "window": window,
    }
    out, blocks_read = _attend(inputs, device, 1, **options)
    expected, blocks = decode_attention_ref(*inputs, **options)
    return error_of(out, expected, torch.float32) if torch.equal(blocks_read.cpu(), blocks) else math.inf


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
    inputs = converging_inputs(1280 * splits, dtype)
    rule = Termination(tau=1e-3, phi=1e-3, patience=4, is_relative=True)
    options = _options(0.3, 16, "no end") | {"termination": rule}
    expected, worst = attention_ref(*(tensor.float() for tensor in inputs), scale=0.3), 0.0
    for _ in range(_RACES if device.type == "cuda" else 1):
        out, blocks_read = _attend(inputs, device, splits, **options)
        if int(blocks_read.max()) >= 80 * splits:
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
