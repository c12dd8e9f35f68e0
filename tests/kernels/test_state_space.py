"""The state space of Mamba-2: many tokens at a time against one after the other, and in parts as in one."""

from __future__ import annotations

import pytest
import torch
from ondevice.kernels.state_space import state_space
from torch import Tensor

from ondevice_bench.speed.references import state_space_ref


def made(num_tokens: int, batch: int, heads: int, groups: int, head_dim: int, size: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(num_tokens)

    def normal(*sizes: int) -> Tensor:
        return torch.randn(*sizes, generator=generator)

    x, steps, decay = normal(batch, num_tokens, heads, head_dim), normal(batch, num_tokens, heads), normal(heads)
    keys, queries = (normal(batch, num_tokens, groups, size) for _ in range(2))
    state = normal(batch, heads, head_dim, size)
    return [x, torch.nn.functional.softplus(steps), -decay.exp(), keys, queries, state]


@pytest.mark.parametrize("sizes", [(4, 1, 8, 16), (6, 3, 16, 8), (2, 2, 5, 7)])
@pytest.mark.parametrize(("num_tokens", "batch"), [(1, 1), (3, 2), (64, 1), (150, 2)])
def test_tokens_and_state_are_those_of_one_token_after_the_other(
    sizes: tuple[int, int, int, int], num_tokens: int, batch: int
) -> None:
    given = made(num_tokens, batch, *sizes)
    before = given[-1].clone()
    out, state = state_space(*given)
    expected, expected_state = state_space_ref(*given)
    assert torch.equal(given[-1], before)
    torch.testing.assert_close(out, expected, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(state, expected_state, atol=1e-4, rtol=1e-4)


def test_steps_without_end_forget_all_before() -> None:
    given = made(100, 1, 4, 1, 8, 16)
    given[1] = torch.full_like(given[1], 1e4)
    out, state = state_space(*given)
    expected, expected_state = state_space_ref(*given)
    torch.testing.assert_close(out, expected, atol=1e-2, rtol=1e-4)
    torch.testing.assert_close(state, expected_state)


def test_two_passes_give_what_one_gives() -> None:
    given = made(130, 1, 4, 2, 8, 16)
    whole, last = state_space(*given)
    x, steps, decay, keys, queries, state = given
    outs = []
    for part in (slice(0, 70), slice(70, 130)):
        out, state = state_space(x[:, part], steps[:, part], decay, keys[:, part], queries[:, part], state)
        outs.append(out)
    torch.testing.assert_close(torch.cat(outs, dim=1), whole, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(state, last, atol=1e-5, rtol=1e-4)
