"""History of retention: every distillation of a reading, to be replayed later.

While a document is read, evictions are final, so the number of heads that hold a token only falls. It is therefore
enough to note, for each token, at which distillation it fell to each step of strength: the same few bytes for every
token, whatever the number of distillations, and nothing is rounded. It is fed with events and knows neither pot nor
screen. As JSON it comes back from a file: what could not have been written for this document is taken for none.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from ondevice.events import PotDistilled

Ended = npt.NDArray[np.uint16]
Shares = npt.NDArray[np.float32]

STEPS_PERCENT = (0, 1, 10, 50)  # a token is at level n while more than the n-th of these per cent of all heads hold it
NUM_LEVELS = len(STEPS_PERCENT) + 1  # level 0: no head holds it
MAX_TOKENS = 8_000_000  # of a document that it is kept for
_MAX_CYCLES = 65_535  # what a uint16 counts to


class RetentionHistory:
    """The distillations of one reading, in the order in which they happened, until one passes `MAX_TOKENS` tokens.

    Attributes:
        first_cycle: number of the distillation that is the first one here; 0 before there is one.
        is_complete: whether every distillation so far is here.
    """

    def __init__(self) -> None:
        self._begin(0)

    def _begin(self, first_cycle: int) -> None:
        self.first_cycle, self.is_complete = first_cycle, True
        # For each step, and last for novelty: the distillation (counted from 1) at which it ended; 0 = not yet.
        self._ended = np.zeros((NUM_LEVELS, 0), np.uint16)
        self._num_positions: list[int] = []
        self._shares: list[Shares] = []
        self._alive = np.empty(0, np.int64)

    @classmethod
    def restore(
        cls, first_cycle: int, ended: Ended, num_positions: list[int], shares: Shares, *, is_complete: bool = True
    ) -> RetentionHistory:
        """That of a `state`, to go on with the next distillation."""
        history = cls()
        history._begin(first_cycle)
        history.is_complete = is_complete
        history._ended, history._num_positions, history._shares = ended.copy(), list(num_positions), list(shares)
        history._alive = np.flatnonzero(ended[0] == 0)
        return history

    def state(self) -> tuple[Ended, list[int], Shares]:
        """Tensors of the history: for each step and token when it ended, (`NUM_LEVELS`, n), and for each distillation
        the tokens up to the cursor and the shares of the levels, (num_cycles, `NUM_LEVELS`)."""
        num_tokens = self._num_positions[-1] if self._num_positions else 0
        return self._ended[:, :num_tokens], self._num_positions, np.array(self._shares).reshape(-1, NUM_LEVELS)

    def until(self, cycle: int) -> RetentionHistory:
        """The same history as it was after a distillation that is here."""
        ended, num_positions, shares = self.state()
        kept = cycle - self.first_cycle + 1
        ended = ended[:, : num_positions[kept - 1]]
        ended = np.where(ended > kept, 0, ended).astype(np.uint16)
        return RetentionHistory.restore(self.first_cycle, ended, num_positions[:kept], shares[:kept])

    @property
    def num_cycles(self) -> int:
        """Distillations that are here."""
        return len(self._num_positions)

    @property
    def last_cycle(self) -> int:
        """Number of the last distillation that is here; 0 before there is one."""
        return self.first_cycle + self.num_cycles - 1 if self.num_cycles else 0

    def apply(self, event: PotDistilled) -> None:
        """Take in one distillation. One that does not follow the last begins a new history."""
        if event.cycle <= self.last_cycle and self.num_cycles:
            return  # known already
        if not self.num_cycles or (self.is_complete and event.cycle != self.last_cycle + 1):
            self._begin(event.cycle)
        num_tokens, cycle = event.retention.num_tokens, self.num_cycles + 1
        if not self.is_complete or num_tokens > MAX_TOKENS or cycle > _MAX_CYCLES:
            self.is_complete = False
            return
        known = self._num_positions[-1] if self._num_positions else 0
        self._make_room(num_tokens)
        tokens = np.concatenate((self._alive, np.arange(known, num_tokens)))
        counts = event.retention.dense()[tokens]
        levels = np.zeros(len(tokens), np.uint8)
        for ended, percent in zip(self._ended, STEPS_PERCENT, strict=False):
            is_below = counts <= event.num_heads_total * percent // 100
            fallen = tokens[is_below]
            ended[fallen] = np.where(ended[fallen] == 0, cycle, ended[fallen])
            levels += ~is_below
        novelty = self._ended[-1]
        is_old = tokens[np.isin(tokens, event.novelty_tokens, invert=True)]
        novelty[is_old] = np.where(novelty[is_old] == 0, cycle, novelty[is_old])
        sums = np.bincount(levels, counts, NUM_LEVELS)
        sizes = np.maximum(np.bincount(levels, minlength=NUM_LEVELS), 1)
        self._shares.append((sums / sizes / max(event.num_heads_total, 1)).astype(np.float32))
        self._alive = tokens[counts > 0]
        self._num_positions.append(num_tokens)

    def num_positions(self, cycle: int) -> int:
        """Tokens of the document up to the cursor at a distillation, by its number."""
        return self._num_positions[cycle - self.first_cycle]

    def levels(self, start: int, stop: int, cycle: int) -> npt.NDArray[np.uint8]:
        """Level (n,) of the tokens [start, stop) right after a distillation, 0..`NUM_LEVELS` - 1.

        Tokens that were not read by then have none: n is smaller for those.
        """
        ended = self._part(start, stop, cycle)[:-1]
        return self._is_later(ended, cycle).sum(axis=0, dtype=np.uint8)

    def is_novel(self, start: int, stop: int, cycle: int) -> npt.NDArray[np.bool_]:
        """True for each of the tokens [start, stop) that novelty kept at a distillation: (n,) as `levels`."""
        return self._is_later(self._part(start, stop, cycle)[-1], cycle)

    def shares(self, cycle: int) -> Shares:
        """Share of all heads that held a token of each level at a distillation, in the mean: (`NUM_LEVELS`,)."""
        return self._shares[cycle - self.first_cycle]

    def _part(self, start: int, stop: int, cycle: int) -> Ended:
        return self._ended[:, start : max(min(stop, self.num_positions(cycle)), start)]

    def _is_later(self, ended: Ended, cycle: int) -> npt.NDArray[np.bool_]:
        return (ended == 0) | (ended > cycle - self.first_cycle + 1)

    def _make_room(self, num_tokens: int) -> None:
        """Buffers double when they are full, up to `MAX_TOKENS`."""
        room = self._ended.shape[1]
        if num_tokens > room:
            grown = np.zeros((NUM_LEVELS, min(max(num_tokens, 2 * room), MAX_TOKENS)), np.uint16)
            grown[:, :room] = self._ended
            self._ended = grown


_LEVEL = 1  # of zlib: long runs of equal numbers, written between two passes of a reading


def history_record(history: RetentionHistory) -> dict[str, Any]:
    """All of a history as JSON, some hundredths of a byte to a few bytes a token; {} where there is none."""
    if not history.num_cycles:
        return {}
    ended, num_positions, shares = history.state()
    packed = zlib.compress(np.ascontiguousarray(ended, "<u2").tobytes(), _LEVEL)
    return {
        "first_cycle": history.first_cycle,
        "is_complete": history.is_complete,
        "num_positions": num_positions,
        "shares": np.round(shares.astype(float), 6).tolist(),
        "ended": base64.b64encode(packed).decode("ascii"),
    }


def history_of(record: object, num_tokens: int, num_cycles: int) -> RetentionHistory:
    """The history of a record, up to a distillation; an empty one where there is none, or where it cannot be.

    Args:
        num_tokens: of the document.
        num_cycles: distillations that the pot has been through: a record may be newer than the pot beside it.
    """
    try:
        history = _parsed(record, num_tokens)
    except (KeyError, TypeError, ValueError, OverflowError, zlib.error, binascii.Error):
        return RetentionHistory()
    if not history.first_cycle <= num_cycles:
        return RetentionHistory()
    return history.until(num_cycles) if history.last_cycle > num_cycles else history


def _parsed(record: Any, num_tokens: int) -> RetentionHistory:
    first, positions, is_complete = record["first_cycle"], record["num_positions"], record["is_complete"]
    if not isinstance(positions, list) or not positions:
        raise ValueError
    whole = [first, *positions]
    if not all(type(number) is int and number > 0 for number in whole) or type(is_complete) is not bool:
        raise ValueError
    if positions[-1] > num_tokens or any(before > after for before, after in pairwise(positions)):
        raise ValueError
    shares = np.array(record["shares"], np.float32).reshape(len(positions), NUM_LEVELS)
    if not ((shares >= 0) & (shares <= 1)).all():  # which a number that is none does not pass
        raise ValueError
    size = 2 * NUM_LEVELS * positions[-1]
    unpacking = zlib.decompressobj()
    data = unpacking.decompress(base64.b64decode(record["ended"], validate=True), size)
    if len(data) != size:
        raise ValueError
    ended = np.frombuffer(data, "<u2").reshape(NUM_LEVELS, -1).astype(np.uint16)
    if ended.max(initial=0) > len(positions):
        raise ValueError
    return RetentionHistory.restore(first, ended, positions, shares, is_complete=is_complete)
