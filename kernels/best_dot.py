"""Brute-force search of the runs of stored vectors closest to a query, by int8 products that read each byte once.

Chosen by trials that no file records: on two busy cores 1.6 million vectors of 192 numbers took 49 ms, and a graph of
HNSW for 6 million would have taken hours to build, reckoned from a small one. `ondevice bench scale --parts index`
times a search.
"""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt
import torch

LEAST = -(2**31)  # the best of a run without vectors
_THREADS_AT = 1 << 16  # vectors: for fewer one thread is quicker


def best_dot(
    vectors: npt.NDArray[np.int8], starts: npt.NDArray[np.int64], query: npt.NDArray[np.int8]
) -> npt.NDArray[np.int32]:
    """The highest product of each run of vectors with a query.

    Args:
        vectors: (n, d), C-contiguous; may be mapped from a file.
        starts: (m + 1,) rising, from 0 to n: run i is vectors [starts[i], starts[i + 1]).
        query: (d,).

    Returns:
        (m,) int32; `LEAST` where a run has no vector.
    """
    assert vectors.flags.c_contiguous
    try:
        from ondevice.kernels.cpu.best_dot import best_of_runs
    except ImportError:  # a machine without Numba
        return best_dot_reference(vectors, starts, query)
    best = np.empty(len(starts) - 1, np.int32)
    num_threads = torch.get_num_threads() if len(vectors) >= _THREADS_AT else 1
    # Equally many vectors for each thread, not equally many runs.
    edges = np.searchsorted(starts[:-1], np.linspace(0, len(vectors), num_threads + 1)[1:-1])
    cuts = [0, *edges.tolist(), len(best)]
    with ThreadPoolExecutor(num_threads) as threads:
        list(threads.map(lambda at: best_of_runs(vectors, starts, query, best, *at), itertools.pairwise(cuts)))
    return best


def best_dot_reference(
    vectors: npt.NDArray[np.int8], starts: npt.NDArray[np.int64], query: npt.NDArray[np.int8]
) -> npt.NDArray[np.int32]:
    """The same in NumPy, with all products in memory."""
    products = vectors.astype(np.int32) @ query.astype(np.int32)
    return np.array([products[first:last].max(initial=LEAST) for first, last in itertools.pairwise(starts)], np.int32)
