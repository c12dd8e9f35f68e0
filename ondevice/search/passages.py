"""Passages of a text: cut where sentences end, overlapping, and the best of them for given scores within a budget."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

PASSAGE_TOKENS, OVERLAP_TOKENS = 200, 50
_ENDS = ("\n\n", "\n", ". ", "? ", "! ", " ")  # where a passage ends best, the best first

Spans = npt.NDArray[np.int32]
Bounds = Sequence[tuple[int, int]]


class Passages:
    """The passages of one text.

    Args:
        text: to be cut.
        spans: of its tokens, (n, 2), characters [start, stop).
        firsts: tokens that a passage begins at in any case, rising from 0.

    Attributes:
        bounds: tokens [start, stop) of each passage, in the order of the document.
    """

    def __init__(self, text: str, spans: Spans, firsts: Sequence[int] = (0,)) -> None:
        between = pairwise((*firsts, len(spans)))
        self.bounds: Bounds = [bounds for first, last in between for bounds in _cut(text, spans, first, last)]

    def best(
        self,
        scores: npt.NDArray[np.floating],
        max_tokens: int,
        num_between: int = 0,
        fits: Callable[[Bounds], bool] = lambda _: True,
        given: Bounds = (),
    ) -> Bounds:
        """The passages with the highest scores that `max_tokens` tokens hold together, in document order.

        Where passages overlap or follow each other they are one stretch, and what they share is there once.

        Args:
            scores: (num_passages,); of equal ones the earlier passage is taken, and none at minus infinity.
            num_between: tokens that stand between two stretches.
            fits: False for stretches that have no room after all: the last passages are left out then.
            given: stretches that are there in any case.
        """
        accepted: list[Bounds] = [list(given)]
        for index in np.argsort(-scores, kind="stable").tolist():
            if np.isneginf(scores[index]):
                break
            found = with_another(accepted[-1], *self.bounds[index])
            if sum(stop - start for start, stop in found) + num_between * (len(found) - 1) <= max_tokens:
                accepted.append(found)
            elif len(accepted) == 1 and not given:
                start = self.bounds[index][0]
                accepted.append([(start, start + max_tokens)])  # not even one passage has room
                break
        while len(accepted) > 2 and not fits(accepted[-1]):
            accepted.pop()
        return accepted[-1]


def _cut(text: str, spans: Spans, start: int, last: int) -> Iterator[tuple[int, int]]:
    """Tokens [start, stop) of each passage of those from `start` to `last`."""
    while start < last:
        stop = min(start + PASSAGE_TOKENS, last)
        if stop < last:
            stop = _end_near(text, spans, stop - PASSAGE_TOKENS // 4, stop)
        yield start, stop
        if stop == last:
            break
        start = _end_near(text, spans, stop - OVERLAP_TOKENS, stop - OVERLAP_TOKENS // 2)


def _end_near(text: str, spans: Spans, low: int, high: int) -> int:
    """A token in (low, high] before which something ends: a paragraph, a line, a sentence, or at least a word."""
    first, last = int(spans[low, 1]), int(spans[high, 0])
    for end in _ENDS:
        at = text.rfind(end, first, last + 1)
        if at >= 0:
            token = low + int(np.searchsorted(spans[low : high + 2, 0], at + len(end)))
            # A token may begin with the blank that ends the word before it.
            token -= int(token > 0 and spans[token - 1, 1] > at + len(end))
            if low < token <= high:
                return token
    return high


def with_another(found: Bounds, start: int, stop: int) -> Bounds:
    """Rising stretches with one more, which is one with those that it touches."""
    apart = [(first, last) for first, last in found if last < start or first > stop]
    touched = [(first, last) for first, last in found if first <= stop and last >= start]
    start, stop = min([start, *(first for first, _ in touched)]), max([stop, *(last for _, last in touched)])
    return sorted([*apart, (start, stop)])
