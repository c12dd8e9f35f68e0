"""The attention that a token will be paid, predicted from its key and value by one linear model per head (KVzap).

KVzap (arXiv 2601.07891) fits the scores of KVzip from hidden states, with weights for each model. Keys before RoPE and
values are linear images of those states, a pot holds them anyway, and they are few enough numbers that a short text
fits them. So nothing is trained elsewhere, and nothing is read twice.
"""

from __future__ import annotations

import torch
from torch import Tensor

_TOLERANCE = 1e-8  # of what is left of the right side, as a share of what was summed up to it
_RIDGE = 300.0  # on features of variance 1; a tenth of it does as well


class NotSolved(ArithmeticError):
    """A system that is not positive, or not finite; or a solution that does not fulfil it."""


def fit(keys: Tensor, values: Tensor, peaks: Tensor) -> Tensor:
    """Weights of each head, by ridge regression.

    Args:
        keys: (layers, kv_heads, n, dim), before RoPE.
        values: as `keys`.
        peaks: (layers, kv_heads, n): the most attention that each token was paid.

    Returns:
        (layers, kv_heads, 2 * dim + 3) float32: of key, value, their lengths, and 1.

    Raises:
        NotSolved: a number is not finite.
    """
    return torch.stack([_fit(*layer) for layer in zip(keys, values, peaks, strict=True)])


def _fit(keys: Tensor, values: Tensor, peaks: Tensor) -> Tensor:
    """`fit` of one layer: its numbers of 8 bytes, several times over, would be as much as a small model for all."""
    features, wanted = _features(keys, values).double(), peaks.double()[..., None]
    mean, spread = features.mean(dim=-2, keepdim=True), features.std(dim=-2, keepdim=True).clamp_min(1e-6)
    scaled, middle = (features - mean) / spread, wanted.mean(dim=-2, keepdim=True)
    transposed = scaled.transpose(-1, -2)
    ridge = _RIDGE * torch.eye(scaled.shape[-1], dtype=scaled.dtype)
    weights = solve_positive(transposed @ scaled + ridge, transposed @ (wanted - middle))
    weights = weights.transpose(-1, -2) / spread
    constant = middle - (weights * mean).sum(dim=-1, keepdim=True)
    return torch.cat((weights, constant), dim=-1)[..., 0, :].float()


def predict_attention(weights: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Scores (batch, kv_heads, n) float32 of keys and values (batch, kv_heads, n, dim).

    Args:
        weights: (kv_heads, 2 * dim + 3), from `fit`.
    """
    return (_features(keys, values) @ weights[:, :-1, None])[..., 0] + weights[:, -1:]


def _features(keys: Tensor, values: Tensor) -> Tensor:
    keys, values = keys.float(), values.float()
    return torch.cat((keys, values, keys.norm(dim=-1, keepdim=True), values.norm(dim=-1, keepdim=True)), dim=-1)


def solve_positive(matrix: Tensor, right: Tensor) -> Tensor:
    """The solution (..., n, m) float64 of systems matrix @ solution = right.

    By Cholesky and checked, not by LU: on CPUs torch gives each system to a thread of its own. There oneMKL's LU of
    more than 150 rows returns no valid pivots once `torch.set_num_threads` was called (pytorch issue 142815).

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
