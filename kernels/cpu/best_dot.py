"""The product of int8 vectors with one of them, and the best of each run, in Numba: the bytes are read once."""

from __future__ import annotations

import numba
import numpy as np
import numpy.typing as npt


@numba.njit(nogil=True, fastmath=True, cache=True)
def best_of_runs(
    vectors: npt.NDArray[np.int8],
    starts: npt.NDArray[np.int64],
    query: npt.NDArray[np.int8],
    best: npt.NDArray[np.int32],
    first: int,
    last: int,
) -> None:
    """Runs [first, last): see `best_dot`; `best` is written in place."""
    for run in range(first, last):
        highest = np.int32(-(2**31))
        for row in range(starts[run], starts[run + 1]):
            total = np.int32(0)
            for i in range(vectors.shape[1]):
                total += np.int32(vectors[row, i]) * np.int32(query[i])
            highest = max(highest, total)
        best[run] = highest
