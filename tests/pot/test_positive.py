"""Positive systems: solved however many threads there are, and refused where there is no solution to rely on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from ondevice.pot.learned_score import NotSolved, fit, solve_positive


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def system(size: int = 6) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    root = torch.randn(3, 40, size, generator=generator, dtype=torch.float64)
    return root.transpose(-1, -2) @ root, torch.rand(3, size, 2, generator=generator, dtype=torch.float64)


def test_the_solution_fulfils_each_system() -> None:
    matrix, right = system()
    torch.testing.assert_close(matrix @ solve_positive(matrix, right), right)
    torch.testing.assert_close(solve_positive(matrix.float(), right.float()), torch.linalg.inv(matrix) @ right)
    assert not solve_positive(matrix, 0 * right).any()


@pytest.mark.parametrize("number", [torch.nan, torch.inf, -torch.inf])
def test_what_is_not_finite_is_refused(number: float) -> None:
    for part in (0, 1):
        spoilt = [tensor.clone() for tensor in system()]
        spoilt[part][1, 2, 1] = spoilt[part][1, 1, min(2, spoilt[part].shape[-1] - 1)] = number
        with pytest.raises(NotSolved):
            solve_positive(*spoilt)


def test_what_is_not_positive_is_refused() -> None:
    matrix, right = system()
    with pytest.raises(NotSolved):
        solve_positive(matrix - 50 * torch.eye(6), right)  # of two signs
    with pytest.raises(NotSolved):
        solve_positive(0 * matrix, right)


@pytest.mark.usefixtures("two_threads")
def test_heads_of_128_numbers_are_fit_by_several_threads_at_once() -> None:
    """As in `bench peers` with the 1.5B: two heads, 258 rows; oneMKL's LU gave no pivots here."""
    torch.manual_seed(0)
    keys, values, peaks = torch.randn(1, 2, 400, 128), torch.randn(1, 2, 400, 128), torch.rand(1, 2, 400)
    assert bool(fit(keys, values, peaks).isfinite().all())
