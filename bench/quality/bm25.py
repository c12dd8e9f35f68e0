"""BM25: how well passages fit a question by the words that they share, rare ones first (Robertson and Zaragoza)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ondevice.decode.word_search import K1, rarity

B = 0.75  # how much a long passage is marked down
_WORD = re.compile(r"\w+")


class BM25:
    """An index of passages."""

    def __init__(self, passages: Sequence[str]) -> None:
        self._counts = [Counter(_words(passage)) for passage in passages]
        lengths = np.array([counts.total() for counts in self._counts], np.float64)
        self._norms = K1 * (1 - B + B * lengths / max(lengths.mean(), 1.0))
        held_by = Counter(word for counts in self._counts for word in counts)
        weights = rarity(len(passages), np.array([*held_by.values()], np.int64))
        self._weights = dict(zip(held_by, weights.tolist(), strict=True))

    def scores(self, question: str) -> npt.NDArray[np.float64]:
        """The score of each passage, shape (num_passages,); 0 where no word is shared."""
        scores = np.zeros(len(self._counts))
        for word in set(_words(question)) & self._weights.keys():
            found = np.array([counts[word] for counts in self._counts], np.float64)
            scores += self._weights[word] * found * (K1 + 1) / (found + self._norms)
        return scores


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())
