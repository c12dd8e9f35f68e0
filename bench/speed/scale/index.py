"""A question to a library of 100,000 documents: how long its index takes to name the closest ones.

The vectors are random numbers of the model's shape, as many as documents of 4,096 tokens have: what a search costs does
not depend on what it finds. They lie in the files that a library has, and are mapped from them.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from ondevice.kernels.best_dot import best_dot, best_dot_reference

from ondevice.library.signature_index import SignatureIndex
from ondevice.library.signatures import BLOCK, dimensions_of, signature_of_question
from ondevice.result import Row, row
from ondevice_bench.quality.measurement import Setup
from ondevice_bench.speed.turns import take_turns

DOCUMENTS = 100_000
_TOKENS = 4096  # of a document
_AT_ONCE = 2_000  # documents that are added together
_MOST = 10  # documents that a search names
_ROUNDS = 7
_BESIDE = 20_000  # vectors that the product in NumPy is compared on, which needs four times their memory
_QUESTION = "When does the lease of the second floor end, and who may end it earlier?"
_SEARCH, _PLAIN = "one search", "the same product in NumPy"
_ASKED, _SIZE, _FASTER = "question and search", "size", "product, speed against NumPy's"


def filled_index(folder: Path, dimensions: int, num_documents: int, seed: int) -> tuple[SignatureIndex, float]:
    """An index of so many documents, and the seconds that adding one takes."""
    index, rng, seconds = SignatureIndex(folder, dimensions), np.random.default_rng(seed), 0.0
    for first in range(0, num_documents, _AT_ONCE):
        size = min(_AT_ONCE, num_documents - first)
        vectors = rng.integers(-127, 128, (size, _TOKENS // BLOCK, dimensions), np.int8)
        began = time.perf_counter()
        index.add([(f"{first + number:032x}", vectors[number]) for number in range(size)])
        seconds += time.perf_counter() - began
    return index, seconds / num_documents


def measure_index(setup: Setup, num_documents: int) -> list[Row]:
    """Seconds of a question, of its parts, and bytes."""
    engine = setup.engine
    dimensions, case = dimensions_of(engine.decoder), {"documents": num_documents, "tokens": _TOKENS}
    with tempfile.TemporaryDirectory(prefix="ondevice-index-") as made:
        setup.report("Filling the index", None)
        index, adding = filled_index(Path(made), dimensions, num_documents, engine.config.seed)
        size = sum(path.stat().st_size for path in Path(made).iterdir())
        setup.report("Searching", None)
        query = signature_of_question(engine, _QUESTION)  # what is measured once for a model is measured now
        seconds = take_turns(
            {
                "question": lambda: index.search(signature_of_question(engine, _QUESTION), _MOST),
                _SEARCH: lambda: index.search(query, _MOST),
            },
            engine.decoder.device,
            max_rounds=_ROUNDS,
            budget_seconds=60.0,
        )
        beside = _beside_numpy(setup, dimensions)
    return [
        row("question", case, _ASKED, "s", seconds["question"]),
        row(_SEARCH, case, "search", "s", seconds[_SEARCH]),
        row("index", case, "adding a document", "s", [adding]),
        row("index", case, _SIZE, "bytes", [size]),
        *beside,
    ]


def index_figures(found: Sequence[Row]) -> dict[str, float]:
    """The summary of the rows of an index, which may lie among others."""
    summary: dict[str, float] = {}
    for one in found:
        if one.metric == _ASKED:
            num_documents = one.case["documents"]
            size = "100k" if num_documents == DOCUMENTS else str(num_documents)
            summary[f"index_seconds_{size}"] = one.p50
        elif one.metric == _SIZE:
            summary["index_bytes"] = one.p50
        elif one.metric == _FASTER:
            summary["index_speedup_vs_numpy"] = one.p50
    return summary


def _beside_numpy(setup: Setup, dimensions: int) -> list[Row]:
    """The product of an index beside NumPy's, on vectors that fit into memory for both."""
    rng = np.random.default_rng(setup.engine.config.seed)
    vectors = rng.integers(-127, 128, (_BESIDE, dimensions), np.int8)
    query, starts = vectors[0].copy(), np.arange(0, _BESIDE + 1, _TOKENS // BLOCK)
    starts = np.unique(np.append(starts, _BESIDE))
    best_dot(vectors, starts, query)  # compiled before it is timed
    seconds = take_turns(
        {
            _SEARCH: lambda: best_dot(vectors, starts, query),
            _PLAIN: lambda: best_dot_reference(vectors, starts, query),
        },
        setup.engine.decoder.device,
        max_rounds=_ROUNDS,
        budget_seconds=20.0,
    )
    case = {"vectors": _BESIDE}
    return [
        *(row(name, case, "product", "s", values) for name, values in seconds.items()),
        row(_SEARCH, case, _FASTER, "ratio", list(np.divide(seconds[_PLAIN], seconds[_SEARCH]))),
    ]
