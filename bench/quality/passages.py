"""Passages of a text for retrieval: cut, ranked for a question by a given score, and put together within a budget.

What a user would build instead of reading everything: passages of about 200 tokens that overlap, cut where sentences
end, the best first until the budget is full, and then in the order of the document.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

PASSAGE_TOKENS, OVERLAP_TOKENS = 200, 50
GAP = "\n\n"  # between passages that are no neighbours
_ENDS = ("\n\n", "\n", ". ", "? ", "! ", " ")  # where a passage ends best, the best first

Spans = npt.NDArray[np.int32]
Encode = Callable[[str], tuple[npt.NDArray[np.int32], Spans]]


class Passages:
    """The passages of one text.

    Args:
        text: to be cut.
        encode: text -> ids (n,), character spans (n, 2).

    Attributes:
        bounds: tokens [start, stop) of each passage, in the order of the document.
        texts: of each passage.
    """

    def __init__(self, text: str, encode: Encode) -> None:
        self._text, self._encode = text, encode
        _, self._spans = encode(text)
        self.bounds = list(_cut(text, self._spans))
        self.texts = [self._between(start, stop) for start, stop in self.bounds]

    def best(self, scores: npt.NDArray[np.floating], max_tokens: int) -> str:
        """The passages with the highest scores that `max_tokens` tokens hold together, in document order.

        Where passages overlap, what they share is there once.

        Args:
            scores: (num_passages,); of equal ones the earlier passage is taken.
        """
        taken = np.zeros(len(self._spans), bool)
        accepted: list[npt.NDArray[np.bool_]] = [taken]
        num_gap = len(self._encode(GAP)[0])
        for index in np.argsort(-scores, kind="stable"):
            start, stop = self.bounds[index]
            more = taken.copy()
            more[start:stop] = True
            if more.sum() + num_gap * (len(_stretches(more)) - 1) <= max_tokens:
                taken = more
                accepted.append(taken)
            elif not taken.any():
                taken[start : start + max_tokens] = True  # not even one passage has room
                break
        # What is joined may have some more tokens than its parts.
        while len(accepted) > 1 and len(self._encode(self._joined(accepted[-1]))[0]) > max_tokens:
            accepted.pop()
        return self._joined(accepted[-1])

    def _joined(self, taken: npt.NDArray[np.bool_]) -> str:
        return GAP.join(self._between(start, stop) for start, stop in _stretches(taken))

    def _between(self, start: int, stop: int) -> str:
        return self._text[self._spans[start, 0] : self._spans[stop - 1, 1]].strip()


def _cut(text: str, spans: Spans) -> list[tuple[int, int]]:
    """Tokens [start, stop) of each passage."""
    bounds, start, num_tokens = list[tuple[int, int]](), 0, len(spans)
    while start < num_tokens:
        stop = min(start + PASSAGE_TOKENS, num_tokens)
        if stop < num_tokens:
            stop = _end_near(text, spans, stop - PASSAGE_TOKENS // 4, stop)
        bounds.append((start, stop))
        if stop == num_tokens:
            break
        start = _end_near(text, spans, stop - OVERLAP_TOKENS, stop - OVERLAP_TOKENS // 2)
    return bounds


def _end_near(text: str, spans: Spans, low: int, high: int) -> int:
    """A token in (low, high] before which something ends: a paragraph, a line, a sentence, or at least a word."""
    first, last = int(spans[low, 1]), int(spans[high, 0])
    for end in _ENDS:
        at = text.rfind(end, first, last + 1)
        if at >= 0:
            token = int(np.searchsorted(spans[:, 0], at + len(end)))
            # A token may begin with the blank that ends the word before it.
            token -= int(token > 0 and spans[token - 1, 1] > at + len(end))
            if low < token <= high:
                return token
    return high


def _stretches(taken: npt.NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Bounds of runs of True."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], taken, [False])).astype(np.int8)))
    return [(int(start), int(stop)) for start, stop in edges.reshape(-1, 2)]
