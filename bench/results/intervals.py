"""Intervals of scores by the bootstrap: what other questions of the same kind could have given."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

FEWEST = 5  # questions: of fewer there is no interval
_DRAWS = 10_000
_OUTSIDE = 0.025  # of the draws on either side of an interval of 95 %

Scores = NDArray[np.float64]


class Estimate(NamedTuple):
    """A figure over `n` questions or rounds, and its interval; None where there are too few of them."""

    value: float
    low: float | None
    high: float | None
    n: int


def estimate(scores: Scores, figure: Callable[[Scores], Scores]) -> Estimate:
    """A figure of mean scores, with the interval of 95 % over questions drawn with replacement.

    Args:
        scores: (questions, contenders); a question is drawn for all contenders together, so differences are paired.
        figure: from mean scores (contenders, ...) to (...).
    """
    value = float(figure(scores.mean(axis=0)))
    if len(scores) < FEWEST:
        return Estimate(value, None, None, len(scores))
    drawn = figure(scores[_draws(len(scores))].mean(axis=1).T)
    low, high = np.quantile(drawn[np.isfinite(drawn)], (_OUTSIDE, 1 - _OUTSIDE))
    return Estimate(value, float(low), float(high), len(scores))


def mean(scores: Scores, *, is_share: bool) -> Estimate:
    """The mean of the scores (questions,) of one contender.

    Shares that are all right or all wrong leave nothing to draw: their bound is that of the binomial distribution.
    """
    found = estimate(scores[:, None], lambda means: means[0])
    if not is_share or found.low is None or found.low != found.high or found.value not in (0.0, 1.0):
        return found
    bound = _OUTSIDE ** (1 / found.n)
    return found._replace(low=bound) if found.value else found._replace(high=1 - bound)


@lru_cache
def _draws(num_questions: int) -> NDArray[np.int64]:
    """Questions of each draw, (draws, questions); the same at every call."""
    return np.random.default_rng(0).integers(0, num_questions, (_DRAWS, num_questions))
