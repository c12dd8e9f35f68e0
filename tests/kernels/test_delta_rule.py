"""The gated delta rule on a CPU: its kernel against the rule written out, and in parts as in one."""

from __future__ import annotations

import pytest
import torch
from ondevice.kernels.delta_rule import delta_rule, has_kernel
from ondevice.kernels.delta_weights import DeltaRule
from torch import Tensor

from ondevice_bench.speed.references import delta_rule_ref

# Heads of keys and of values, their sizes: whole vectors of 16 numbers.
HEADS = [(2, 2, 16, 16), (2, 4, 32, 48), (1, 3, 48, 32), (2, 2, 16, 112)]


def made(heads: tuple[int, int, int, int], num_tokens: int, batch: int = 1) -> tuple[list[Tensor], DeltaRule]:
    num_keys, num_values, key_dim, value_dim = heads
    generator = torch.Generator().manual_seed(num_tokens)

    def normal(*size: int) -> Tensor:
        return torch.randn(*size, generator=generator)

    channels = 2 * num_keys * key_dim + num_values * value_dim
    rule = DeltaRule(
        taps=normal(4, channels) / 2,
        decay=normal(num_values).exp(),
        step=normal(num_values),
        norm=1 + normal(value_dim) / 10,
        eps=1e-6,
        num_key_heads=num_keys,
        num_value_heads=num_values,
        key_dim=key_dim,
        value_dim=value_dim,
    )
    of_tokens = channels, num_values * value_dim, num_values, num_values
    given = [normal(batch, num_tokens, size) for size in of_tokens]
    return [*given, normal(batch, 4, channels), normal(batch, num_values, key_dim, value_dim)], rule


@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize(("num_tokens", "batch"), [(1, 1), (3, 2), (64, 1), (131, 2)])
def test_tokens_and_state_are_those_of_the_rule(heads: tuple[int, int, int, int], num_tokens: int, batch: int) -> None:
    given, rule = made(heads, num_tokens, batch)
    assert has_kernel(given[0], rule)
    before = given[5].clone()
    out, state = delta_rule(*given, rule)
    expected, expected_state = delta_rule_ref(*given, rule)
    assert torch.equal(given[5], before)
    assert (out - expected).abs().max() <= 1e-5 * expected.abs().max()
    assert (state - expected_state).abs().max() <= 1e-5 * expected_state.abs().max()


def test_two_passes_give_what_one_gives() -> None:
    given, rule = made(HEADS[1], 90)
    whole, last = delta_rule(*given, rule)
    parts = [[each[:, :50].contiguous(), each[:, 50:].contiguous()] for each in given[:4]]
    first, state = delta_rule(*(part[0] for part in parts), *given[4:], rule)
    inputs = given[0][:, 46:50].contiguous()
    second, state = delta_rule(*(part[1] for part in parts), inputs, state, rule)
    assert torch.equal(torch.cat((first, second), dim=1), whole)
    assert torch.equal(state, last)


def test_large_numbers_are_finite() -> None:
    given, rule = made(HEADS[0], 5)
    for each in given[:4]:
        each *= 1e4
    out, state = delta_rule(*given, rule)
    assert bool(out.isfinite().all() and state.isfinite().all())


@pytest.mark.parametrize(("heads", "dtype"), [((2, 2, 16, 10), torch.float32), (HEADS[0], torch.bfloat16)])
def test_others_are_left_to_transformers(heads: tuple[int, int, int, int], dtype: torch.dtype) -> None:
    given, rule = made(heads, 1)
    assert not has_kernel(given[0].to(dtype), rule)


def test_torch_can_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    given, rule = made(HEADS[0], 1)
    monkeypatch.setenv("KERNELS_IMPL", "torch")
    assert not has_kernel(given[0], rule)
