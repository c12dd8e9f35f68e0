"""Symmetric positive systems of equations, several at once, solved by Cholesky and checked.

Not by LU: on CPUs torch gives each system to a thread of its own. There oneMKL's LU of more than 150 rows returns no
valid pivots once `torch.set_num_threads` was called (pytorch issue 142815).
"""

from __future__ import annotations

import torch
from torch import Tensor

_TOLERANCE = 1e-8  # of what is left of the right side, as a share of what was summed up to it


class NotSolved(ArithmeticError):
    """A system that is not positive, or not finite; or a solution that does not fulfil it."""


def solve_positive(matrix: Tensor, right: Tensor) -> Tensor:
    """The solution (..., n, m) float64 of systems matrix @ solution = right.

    Args:
        matrix: (..., n, n), symmetric and positive definite.
        right: (..., n, m).

    Raises:
        NotSolved: there is none, for one system or more.
    """
    matrix, right = matrix.double(), right.double()
    factor, failures = torch.linalg.cholesky_ex(matrix)
    solution = torch.cholesky_solve(right, factor)
    left = (matrix @ solution - right).abs().amax()
    summed = matrix.abs().amax() * solution.abs().amax() + right.abs().amax()
    if bool(failures.any()) or not bool(left <= _TOLERANCE * summed):  # false of what is not a number
        raise NotSolved("The system has no solution")
    return solution
