"""Weights of four bits for a GPU: how they lie in memory, what they are worth, and what products with them give."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from ondevice.kernels import int4
from ondevice.kernels.int4 import (
    GROUP_SIZE,
    Int4Rows,
    Int4Weight,
    int4_bytes,
    joined_int4,
    pack_int4,
    suits_int4,
    unpack_int4,
    widened,
)
from ondevice.kernels.projection import project
from ondevice.kernels.rounding import quantize, quantize_int4
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from ondevice_bench.speed.references import project_ref

SHAPES = [(8, 32), (16, 64), (24, 96), (40, 256)]  # one, two, one and four words to a thread


def parts_of(shape: tuple[int, int]) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(sum(shape))
    codes = torch.randint(0, 16, shape, generator=generator, dtype=torch.uint8)
    scales, zeros = torch.randn(2, shape[0], shape[1] // GROUP_SIZE, generator=generator)
    return codes, scales, zeros


def rows_of(weight: Int4Weight) -> Int4Rows:
    (rows,) = weight.parts
    assert isinstance(rows, Int4Rows)
    return rows


def words_of_torch(codes: Tensor, depth: int) -> list[list[list[list[int]]]]:
    """What torch's own kernel stores, thread by thread: aten/src/ATen/native/cuda/int4mm.cu,
    matrix_to_m16n8k16_Bint4_layout, of bytes that hold an even input above an odd one."""
    num_rows, num_columns = codes.shape
    pairs = (codes[:, 0::2].int() << 4 | codes[:, 1::2].int()).tolist()
    words: list[list[list[list[int]]]] = []
    for n_tile in range(num_rows // 8):
        words.append([])
        for k_outer in range(num_columns // (32 * depth)):
            words[-1].append([])
            for thread in range(32):
                words[-1][-1].append([])
                for inner in range(0, 2 * depth, 2):
                    base = (k_outer * 2 * depth + inner) * 8
                    at = [base + thread % 4, base + thread % 4 + 4, base + 8 + thread % 4, base + 12 + thread % 4]
                    v = [pairs[8 * n_tile + thread // 4][k] for k in at]
                    low = [(v[i] & 15) << 16 + 4 * i for i in range(4)]
                    high = [(v[i] >> 4) << 4 * i for i in range(4)]
                    word = sum(low) + sum(high)
                    words[-1][-1][-1].append(word - (1 << 32) if word >> 31 else word)
    return words


@pytest.mark.parametrize("shape", SHAPES)
def test_codes_lie_as_torch_lays_them(shape: tuple[int, int]) -> None:
    codes, scales, zeros = parts_of(shape)
    rows = rows_of(pack_int4(codes, scales, zeros))
    depth = rows.codes.shape[3]
    assert rows.codes.shape == (shape[0] // 8, shape[1] // 32 // depth, 32, depth)
    assert rows.codes.tolist() == words_of_torch(codes, depth)
    assert torch.equal(unpack_int4(rows), codes)
    assert torch.equal(rows.factors[..., 0], scales.T.to(torch.bfloat16))
    assert torch.equal(rows.factors[..., 1], zeros.T.to(torch.bfloat16))


@pytest.mark.parametrize("shape", SHAPES)
def test_torch_takes_these_shapes(shape: tuple[int, int]) -> None:
    """Its own checks, on tensors without numbers."""
    codes, scales, zeros = parts_of(shape)
    rows = rows_of(pack_int4(codes, scales, zeros))
    with FakeTensorMode():
        pairs = torch.empty(shape[0], shape[1] // 2, dtype=torch.uint8)
        packed = torch.ops.aten._convert_weight_to_int4pack(pairs, 2 * rows.codes.shape[3])
        assert (packed.shape, packed.dtype) == (rows.codes.shape, rows.codes.dtype)
        x, factors = (torch.empty(size, dtype=torch.bfloat16) for size in ((3, shape[1]), rows.factors.shape))
        out = torch.ops.aten._weight_int4pack_mm(x, packed, GROUP_SIZE, factors)
    assert (out.shape, out.dtype) == ((3, shape[0]), torch.bfloat16)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_weight_is_worth_what_its_numbers_say(shape: tuple[int, int]) -> None:
    codes, scales, zeros = parts_of(shape)
    wide = widened(rows_of(pack_int4(codes, scales, zeros)))
    exact = codes.double().unflatten(1, (-1, GROUP_SIZE)) - 8
    exact = (
        exact * scales.to(torch.bfloat16).double()[..., None] + zeros.to(torch.bfloat16).double()[..., None]
    ).flatten(1)
    assert wide.dtype == torch.bfloat16
    assert torch.equal(wide, exact.to(torch.bfloat16))


@pytest.mark.parametrize("num_tokens", [1, 7])
@pytest.mark.parametrize("has_bias", [False, True])
def test_products_are_those_of_the_wide_weights(
    num_tokens: int, has_bias: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(int4, "_WIDE", 8 * 96)  # a tile at a time
    generator = torch.Generator().manual_seed(1)
    plain = torch.randn(10, 96, generator=generator).to(torch.bfloat16)
    weight = joined_int4([pack_int4(*parts_of((24, 96))), pack_int4(*parts_of((8, 96))), plain])
    assert weight.shape == (42, 96)
    assert [part.shape[0] for part in weight.parts] == [32, 10]
    x = torch.randn(1, num_tokens, 96, generator=generator).to(torch.bfloat16)
    bias = torch.randn(42, generator=generator).to(torch.bfloat16) if has_bias else None
    out = project(x, weight, bias)
    assert (out.shape, out.dtype) == ((1, num_tokens, 42), torch.bfloat16)
    torch.testing.assert_close(out, project_ref(x, weight, bias), rtol=2e-2, atol=0.2)


def test_some_rows_are_views_of_all() -> None:
    rows = rows_of(pack_int4(*parts_of((40, 256))))
    some = rows.between(8, 24)
    assert some.codes.data_ptr() == rows.codes[1].data_ptr()
    assert torch.equal(widened(some), widened(rows)[8:24])


def test_memory_is_as_forecast() -> None:
    weight = pack_int4(*parts_of((40, 256)))
    assert sum(tensor.nbytes for tensor in weight.tensors) == int4_bytes(40 * 256)
    assert suits_int4(40, 256)
    assert not suits_int4(40, 80)
    assert not suits_int4(41, 64)


def test_rounding_costs_hardly_more_than_with_scales_in_float16() -> None:
    from ondevice.kernels.packed import unpack

    weight = torch.randn(64, 512, generator=torch.Generator().manual_seed(2))
    error = (widened(rows_of(quantize_int4(weight))).float() - weight).norm()
    finer = (unpack(quantize(weight, 4)) - weight).norm()
    assert finer < error < 1.01 * finer


def test_a_gpu_without_it_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*args: Any) -> Any:
        raise NotImplementedError("no such kernel\nand more")

    int4.lacks_int4.cache_clear()
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    assert "compute capability 8.0" in int4.lacks_int4(torch.device("cpu"))
    int4.lacks_int4.cache_clear()
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    assert int4.lacks_int4(torch.device("cpu")) == ""  # the product of a CPU stands for it
    int4.lacks_int4.cache_clear()
    with monkeypatch.context() as patched:
        patched.setattr(int4, "_product", failing)
        assert int4.lacks_int4(torch.device("cpu")) == "NotImplementedError: no such kernel"
    int4.lacks_int4.cache_clear()
    with monkeypatch.context() as patched:
        patched.setattr(int4, "_product", lambda x, part: x.new_zeros(x.shape[0], part.shape[0]))
        assert "wrong" in int4.lacks_int4(torch.device("cpu"))
    int4.lacks_int4.cache_clear()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch's products with four bits run on an NVIDIA GPU alone")
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("num_tokens", [1, 17, 200])
def test_torch_multiplies_what_we_packed(shape: tuple[int, int], num_tokens: int) -> None:
    codes, scales, zeros = parts_of(shape)
    pairs = (codes[:, 0::2] << 4 | codes[:, 1::2]).cuda()
    rows = rows_of(pack_int4(codes.cuda(), scales.cuda(), zeros.cuda()))
    assert torch.equal(torch.ops.aten._convert_weight_to_int4pack(pairs, 2 * rows.codes.shape[3]), rows.codes)
    x = torch.randn(num_tokens, shape[1], device="cuda").to(torch.bfloat16)
    weight = Int4Weight((rows,))
    torch.testing.assert_close(project(x, weight), project_ref(x, weight), rtol=2e-2, atol=0.3)
