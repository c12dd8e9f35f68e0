"""Passages that stand in a pot of their own after an answer: what the next question's have in common is not read again.

Many of a question's passages were read for the one before it. Others leave the pot, and positions follow the
document's order, whatever was read first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from ondevice.context import Context
from ondevice.pot.numbering import number_in_order_
from ondevice.search.passages import Bounds

_FEWEST = 24  # tokens of a stretch that is worth keeping


class Piece(NamedTuple):
    """Tokens [start, stop) of the document, after `head`, the ids that say where they are from."""

    start: int
    stop: int
    head: npt.NDArray[np.int32]

    @property
    def num_tokens(self) -> int:
        """Slots that it takes."""
        return self.head.size + self.stop - self.start


class Standing:
    """A context that has read the model's prompt and some pieces of the document.

    Args:
        num_before: tokens of the prompt.

    Attributes:
        pieces: in the order in which they were read.
    """

    def __init__(self, context: Context, num_before: int) -> None:
        self.context, self._num_before = context, num_before
        self.pieces: list[Piece] = []

    def keep_(self, shared: Sequence[Sequence[Piece]], num_more: int) -> bool:
        """Evict all but these parts of its pieces, if there is room for so many tokens more then."""
        pot, at = self.context.pot, self._num_before
        slots, kept = list(range(at)), list[Piece]()
        for piece, pieces in zip(self.pieces, shared, strict=True):
            first = at + piece.head.size
            for part in pieces:
                slots += range(first - part.head.size, first)
                slots += range(first + part.start - piece.start, first + part.stop - piece.start)
            kept += pieces
            at += piece.num_tokens
        if len(slots) + num_more > pot.capacities[0]:
            return False
        if len(slots) < pot.num_cached[0]:
            index = torch.tensor(slots, device=pot.positions.device)
            pot.compact_(
                pot.shape.layers, index.expand(pot.shape.num_layers, pot.shape.batch, pot.shape.num_kv_heads, -1)
            )
            pot.num_ranked = [0] * pot.shape.num_layers  # in the order of the text, not of importance
            number_in_order_(pot)
        self.pieces = kept
        return True

    def number_(self) -> None:
        """Number positions by the order in the document, each head before its piece."""
        pot, number = self.context.pot, self._num_before
        starts = list(accumulate((piece.num_tokens for piece in self.pieces), initial=number))
        numbers = list(range(starts[-1]))
        for at, piece in sorted(zip(starts, self.pieces, strict=False), key=lambda one: one[1].start):
            numbers[at : at + piece.num_tokens] = range(number, number + piece.num_tokens)
            number += piece.num_tokens
        pot.positions[..., : len(numbers)] = torch.tensor(numbers, dtype=torch.int32, device=pot.positions.device)
        number_in_order_(pot)

    def shared(self, found: Bounds) -> list[list[Piece]]:
        """The parts of each piece that stretches [start, stop) of the document have, the head with the first of them;
        none where tokens cannot leave its pot."""
        pot, shared = self.context.pot, list[list[Piece]]()
        if pot.shape.state or len({*pot.capacities}) > 1:  # what left would stay in a state, or window
            return []
        for piece in self.pieces:
            within = ((max(piece.start, start), min(piece.stop, stop)) for start, stop in found)
            stretches = [(start, stop) for start, stop in within if stop - start >= _FEWEST]
            heads = [piece.head, *[piece.head[:0]] * len(stretches)]
            shared.append([Piece(*stretch, head) for stretch, head in zip(stretches, heads, strict=False)])
        return shared


def without(found: Bounds, pieces: Iterable[Piece]) -> Bounds:
    """The parts of some stretches that are in none of these pieces."""
    left, known = list[tuple[int, int]](), sorted(pieces, key=lambda piece: piece.start)
    for start, stop in found:
        for first, last, _ in (piece for piece in known if piece.start < stop):
            if start < first:
                left.append((start, first))
            start = max(start, last)
        if start < stop:
            left.append((start, stop))
    return left
