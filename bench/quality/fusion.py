"""Reciprocal rank fusion (Cormack, Clarke and Büttcher, 2009): several rankings of the same things become one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

_FLAT = 60  # as published: how little the first rank counts more than the next


def fused(scores: Sequence[npt.NDArray[np.floating]], weights: Sequence[float] = ()) -> npt.NDArray[np.float64]:
    """One score of each thing from several, (n,) each: the sum of `weight / (60 + rank)`.

    What a ranking scores with 0 or less it does not rank.
    """
    total = np.zeros(len(scores[0]))
    for of, weight in zip(scores, weights or [1.0] * len(scores), strict=True):
        order = np.argsort(-of, kind="stable")
        order = order[of[order] > 0]
        total[order] += weight / (_FLAT + 1 + np.arange(order.size))
    return total
