"""Attention of many queries on a CPU, by the kernel that Numba compiles: equal to the reference, however it is cut."""

from __future__ import annotations

import pytest
import torch
from ondevice.kernels.attention import attention
from ondevice.kernels.coded_attention import causal_coded_attention, takes_many
from ondevice.kernels.codes import Coded
from ondevice.kernels.cpu import causal_attention, query_tiles
from ondevice.kernels.cpu.causal_attention import MIN_QUERIES, attend, suits
from ondevice.kernels.cpu.vectors import HAS_AVX2, LANES
from ondevice.kernels.rope import rotate, rows_of
from torch import Tensor

from ondevice_bench.speed.gpu.coded_inputs import BITS, coded_inputs
from ondevice_bench.speed.references import attention_ref
from tests.builders.grids import first_of

# batch, heads, KV heads, queries, slots, head size
SHAPES = (
    (1, 14, 2, 100, 300, 64),  # seven heads share one KV head; more than a block of slots, not whole panels
    (2, 4, 4, 33, 33, 32),  # nothing but the new tokens
    (1, 6, 2, 97, 130, 128),  # one query more than go from block to block together
    (1, 3, 1, 40, 256, 80),  # whole blocks
    (1, 2, 2, 64, 321, 16),
    (1, 2, 1, 35, 70, 256),
    (1, 2, 1, 35, 70, 3 * LANES),
)


@pytest.fixture(autouse=True)
def same_numbers() -> None:
    torch.manual_seed(0)


def inputs(shape: tuple[int, ...]) -> tuple[Tensor, Tensor, Tensor]:
    """Query, keys and values as a pot gives them: the first slots of a larger buffer."""
    batch, heads, kv_heads, num_queries, num_slots, head_dim = shape
    keys, values = torch.randn(2, batch, kv_heads, num_slots + 7, head_dim)[..., :num_slots, :].unbind()
    return torch.randn(batch, num_queries, heads, head_dim).transpose(1, 2) * 2, keys * 2, values


@pytest.mark.parametrize("shape", first_of(*SHAPES))
def test_it_equals_the_reference(shape: tuple[int, ...]) -> None:
    query, keys, values = inputs(shape)
    expected = attention_ref(query, keys, values, scale=0.2)
    torch.testing.assert_close(attend(query, keys, values, scale=0.2), expected, atol=3e-5, rtol=3e-5)


@pytest.mark.skipif(not query_tiles.HAS_PAIRS, reason="this processor multiplies no bfloat16")
@pytest.mark.parametrize("shape", first_of(*SHAPES))
def test_in_bfloat16_it_is_as_close_as_bfloat16_is(shape: tuple[int, ...]) -> None:
    query, keys, values = inputs(shape)
    expected = attention_ref(query, keys, values, scale=0.2)
    got = attend(query, keys, values, scale=0.2, in_bfloat16=True)
    assert 0 < (got - expected).norm() < 0.01 * expected.norm()


@pytest.mark.skipif(not HAS_AVX2, reason="elsewhere codes are made wide by torch")
@pytest.mark.parametrize("num_queries", [2, 7, 97])
@pytest.mark.parametrize("shape", first_of((1, 14, 2, 300, 64), (2, 4, 4, 129, 32), (1, 6, 2, 256, 128)))
@pytest.mark.parametrize("bits", BITS)
def test_of_codes_it_is_that_of_wide_keys_and_values(bits, shape: tuple[int, ...], num_queries: int) -> None:
    _, whole, positions, cos, sin = coded_inputs(shape, bits=bits)
    coded = Coded(*(part[:, :, 3:] for part in whole[:4]), whole.frame)
    positions = positions[..., 3:]
    query = torch.randn(*shape[:2], num_queries, shape[4])
    assert takes_many(query, cos.shape[-1])
    keys = rotate(coded.wide_keys(torch.float32), rows_of(cos, positions), rows_of(sin, positions))
    expected = attention_ref(query, keys, coded.wide_values(torch.float32), scale=0.2)
    got = causal_coded_attention(query, coded, positions, cos, sin, scale=0.2)
    torch.testing.assert_close(got, expected, atol=5e-5, rtol=5e-5)
    rounded = causal_coded_attention(query, coded, positions, cos, sin, scale=0.2, in_bfloat16=True)
    assert (rounded - expected).norm() < 0.01 * expected.norm()


def test_kernels_of_codes_are_for_what_they_can_read(monkeypatch: pytest.MonkeyPatch) -> None:
    query = torch.zeros(1, 2, 5, 32)
    assert takes_many(query, 32) == HAS_AVX2
    assert not takes_many(query, 16)
    assert not takes_many(query[..., :20], 20)
    assert not takes_many(query.bfloat16(), 32)
    monkeypatch.setenv("KERNELS_IMPL", "torch")
    assert not takes_many(query, 32)


@pytest.mark.parametrize("in_bfloat16", [False, True])
def test_threads_and_passes_change_nothing(in_bfloat16: bool) -> None:
    query, keys, values = inputs((1, 4, 2, 300, 700, 64))
    options = {"scale": 0.125, "in_bfloat16": in_bfloat16}
    whole = attend(query, keys, values, **options)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        assert torch.equal(attend(query, keys, values, **options), whole)
    finally:
        torch.set_num_threads(before)
    for first, last in ((0, 100), (100, 140), (140, 300)):
        seen = 400 + last
        got = attend(query[:, :, first:last], keys[:, :, :seen], values[:, :, :seen], **options)
        assert torch.equal(got, whole[:, :, first:last])


def test_what_comes_later_is_not_seen() -> None:
    query, keys, values = inputs((1, 2, 1, 50, 90, 32))
    out = attend(query, keys, values, scale=0.2)
    keys[:, :, 60:], values[:, :, 60:] = 1e4, 1e30
    assert torch.equal(attend(query, keys, values, scale=0.2)[:, :, :20], out[:, :, :20])


def test_large_scores_stay_numbers() -> None:
    query, keys, values = inputs((1, 2, 1, 40, 90, 32))
    got = attend(query * 100, keys * 100, values, scale=1.0)
    torch.testing.assert_close(got, attention_ref(query * 100, keys * 100, values, scale=1.0), atol=1e-3, rtol=1e-3)


@pytest.mark.skipif(not HAS_AVX2, reason="torch's kernel is taken elsewhere")
def test_it_is_taken_where_it_is_faster_and_can_be_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    query, keys, values = inputs((1, 4, 2, MIN_QUERIES, 100, 32))
    calls = []
    monkeypatch.setattr(
        causal_attention, "attend", lambda *args, **options: calls.append(1) or attend(*args, **options)
    )
    compiled = attention(query, keys, values, scale=0.2)
    assert len(calls) == 1
    monkeypatch.setenv("KERNELS_IMPL", "torch")
    torch.testing.assert_close(attention(query, keys, values, scale=0.2), compiled)
    assert len(calls) == 1
    assert not suits(query[:, :, 1:], keys)
    assert not suits(query.bfloat16(), keys.bfloat16())
    assert not suits(query[..., :20], keys[..., :20])
