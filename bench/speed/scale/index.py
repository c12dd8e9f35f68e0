"""A question to a library of 100,000 documents: how long its index takes to name the closest ones.

The documents are drawn words whose frequencies fall as in natural language, as many as 4,096 tokens of a text are: what
a search costs depends on how many documents share a word with the question, and not on what they say.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ondevice.library.index import LibraryIndex
from ondevice_bench.quality.measurement import Setup
from ondevice_bench.results.result import Row, row
from ondevice_bench.speed.turns import take_turns

DOCUMENTS = 100_000
_TOKENS, _WORDS, _VOCABULARY = 4096, 3000, 50_000  # of a document, of the same document, of all of them
_AT_ONCE = 2_000  # documents that are added together
_ROUNDS = 7
_QUESTION_WORDS = (0, 3, 20, 90, 400, 1500, 6000, 20_000)  # by their rank: from "the" to a name
_ASKED, _SIZE = "question and search", "size"


def filled_index(path: Path, num_documents: int, seed: int) -> tuple[LibraryIndex, float]:
    """An index of so many documents, and the seconds that adding one takes."""
    index, rng, seconds = LibraryIndex(path), np.random.default_rng(seed), 0.0
    shares = np.cumsum(1 / np.arange(1, _VOCABULARY + 1))
    for first in range(0, num_documents, _AT_ONCE):
        size = min(_AT_ONCE, num_documents - first)
        drawn = np.searchsorted(shares, rng.random((size, _WORDS)) * shares[-1])
        texts = {f"{first + number:032x}": [" ".join(map(_word, one))] for number, one in enumerate(drawn.tolist())}
        began = time.perf_counter()
        index.add(texts)
        seconds += time.perf_counter() - began
    return index, seconds / num_documents


def measure_index(setup: Setup, num_documents: int) -> list[Row]:
    """Seconds of a question, and bytes."""
    engine = setup.engine
    case = {"documents": num_documents, "tokens": _TOKENS}
    with tempfile.TemporaryDirectory(prefix="ondevice-index-") as made:
        setup.report("Filling the index", None)
        path, question = Path(made) / "index", " ".join(map(_word, _QUESTION_WORDS))
        index, adding = filled_index(path, num_documents, engine.config.seed)
        setup.report("Searching", None)
        seconds = take_turns(
            {"question": lambda: index.closest(question)},
            engine.decoder.device,
            max_rounds=_ROUNDS,
            budget_seconds=60.0,
        )
        return [
            row("question", case, _ASKED, "s", seconds["question"]),
            row("index", case, "adding a document", "s", [adding]),
            row("index", case, _SIZE, "bytes", [path.stat().st_size]),
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
    return summary


def _word(rank: int) -> str:
    return f"w{rank:x}"
