"""The token map's cells: what became of each token of a document, for any stretch of it, at any size of cell.

A cell stands for a run of neighbouring tokens and takes seven bytes, so that a screen full of cells is a few kilobytes
whether it shows a page or a document of a million tokens. The drawing is in assets/token_map.js.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from ondevice.telemetry.provenance import Provenance
from ondevice.telemetry.retention_history import STEPS_PERCENT, RetentionHistory

Ints = npt.NDArray[np.int64]

MAX_CELLS = 8_192  # of one answer to the browser: 57 kB
_DECADES = 4  # that the second byte of a cell spans


class State(IntEnum):
    """State of a token. The numbers are those of assets/token_source.js."""

    UNREAD = 0
    SKIPPED = 1
    EVICTED = 2
    PRUNED = 3
    IN_HOST = 4
    KEPT = 5
    NOVEL = 6
    RECENT = 7
    SINK = 8


_KEPT_STATES = (State.KEPT, State.NOVEL, State.RECENT, State.SINK)
# What can be laid over the field, in the order of their bytes; the names are those of assets/map_layers.js.
LAYERS = {"novel": State.NOVEL, "host": State.IN_HOST, "pruned": State.PRUNED, "skipped": State.SKIPPED}


@dataclass(frozen=True, slots=True)
class Look:
    """The moment and the part of the model that are shown; None: now, all layers, all heads.

    A moment in the past is known for all layers and heads together only.
    """

    cycle: int | None = None
    layer: int | None = None
    head: int | None = None


@dataclass(frozen=True, slots=True)
class Cells:
    """Cells from left to right.

    Attributes:
        states: (num_cells,) uint8 of `State`.
        steps: (num_cells,) uint8: how many of `STEPS_PERCENT` the share of heads passes; 0 where nothing is kept.
        shares: (num_cells,) float64, share of (layer, head) pairs that hold the tokens, in the mean over the cell.
        counts: tokens of each state, (num_cells, number of states) int64.
    """

    states: npt.NDArray[np.uint8]
    steps: npt.NDArray[np.uint8]
    shares: npt.NDArray[np.float64]
    counts: Ints

    def to_bytes(self) -> bytes:
        """Two bytes a cell: the state in the low and the step in the high half, and the share on a log scale."""
        strength = 255 * (1 + np.log10(np.maximum(self.shares, 1e-12)) / _DECADES)
        strength = np.where(self.shares > 0, np.clip(np.round(strength), 1, 255), 0).astype(np.uint8)
        return np.stack((self.states | self.steps << 4, strength), axis=1).tobytes()

    def layers_to_bytes(self) -> bytes:
        """One byte a cell for what is kept, then for each of `LAYERS`: which part of its tokens is in that state.

        255 is all of them, and 0 none: a single token of many is 1.
        """
        counts = np.column_stack((self.counts[:, State.KEPT :].sum(axis=1), self.counts[:, list(LAYERS.values())]))
        parts = counts / np.maximum(self.counts.sum(axis=1, keepdims=True), 1)
        return np.ceil(255 * parts).astype(np.uint8).T.tobytes()


def make_cells(
    num_tokens: int, seen: Provenance | None, history: RetentionHistory, start: int, stop: int, size: int, look: Look
) -> Cells:
    """The tokens [start, stop) in cells of `size` tokens, the last of which may be smaller.

    Args:
        num_tokens: of the document.
        seen: the pot as it is; None before anything was read.
        history: of the same reading; it has to hold `look.cycle`.
    """
    stop = min(stop, num_tokens)
    firsts = np.arange(start, stop, size)
    lasts = np.minimum(firsts + size, stop)
    counts, shares = np.zeros((len(firsts), len(State)), np.int64), np.zeros(len(firsts))
    counts[:, State.UNREAD] = lasts - firsts
    states = np.full(len(firsts), State.UNREAD, np.uint8)
    if seen is None or not len(firsts):
        return Cells(states, np.zeros_like(states), shares, counts)
    tokens, held, kinds = _kept(seen, history, start, stop, look)
    at = (tokens - start) // size
    shares = np.bincount(at, held, len(firsts)) / (lasts - firsts)
    in_kinds = np.stack([np.bincount(at[kinds == kind], held[kinds == kind], len(firsts)) for kind in _KEPT_STATES])
    for kind in _KEPT_STATES:
        counts[:, kind] = np.bincount(at[kinds == kind], minlength=len(firsts))
    num_kept = counts.sum(axis=1) - counts[:, State.UNREAD]
    _count_lost(counts, seen, history, firsts, lasts, tokens, look)
    # What is kept by anyone at all must not look evicted.
    lost = counts[:, : State.IN_HOST + 1].argmax(axis=1)
    states = np.where(num_kept > 0, np.array(_KEPT_STATES)[in_kinds.argmax(axis=0)], lost).astype(np.uint8)
    steps = sum((shares > percent / 100 + 1e-9).astype(np.uint8) for percent in STEPS_PERCENT)
    return Cells(states, np.where(num_kept > 0, np.maximum(steps, 1), 0).astype(np.uint8), shares, counts)


def _kept(
    seen: Provenance, history: RetentionHistory, start: int, stop: int, look: Look
) -> tuple[Ints, npt.NDArray[np.float64], npt.NDArray[np.uint8]]:
    """The tokens of [start, stop) that are kept, the share of heads that hold each, and its state."""
    if look.cycle is None:
        tokens, shares = seen.held(start, stop, look.layer, look.head)
        kinds = np.full(len(tokens), State.KEPT, np.uint8)
        kinds[np.isin(tokens, seen.novel_tokens(look.layer, look.head), assume_unique=True)] = State.NOVEL
        kinds[tokens >= seen.num_settled] = State.RECENT
    else:
        levels = history.levels(start, stop, look.cycle)
        at = np.flatnonzero(levels)
        tokens, shares = at + start, history.shares(look.cycle)[levels[at]].astype(np.float64)
        is_novel = history.is_novel(start, stop, look.cycle)[at]
        kinds = np.where(is_novel, State.NOVEL, State.KEPT).astype(np.uint8)
    kinds[tokens < seen.num_sinks] = State.SINK
    return tokens, shares, kinds


def _count_lost(
    counts: Ints, seen: Provenance, history: RetentionHistory, firsts: Ints, lasts: Ints, kept: Ints, look: Look
) -> None:
    """Fill in how many tokens of each cell are not kept, and why; `counts` has those that are."""
    cursor, in_host = seen.num_positions, seen.in_host
    if look.cycle is not None:
        cursor = history.num_positions(look.cycle)
        in_host = seen.host_span_at(cursor)
    start, size = int(firsts[0]), max(int(lasts[0] - firsts[0]), 1)
    gone = np.ones(max(min(int(lasts[-1]), cursor) - start, 0), bool)
    gone[kept[kept < start + len(gone)] - start] = False
    is_skipped = gone & seen.is_skipped(start, start + len(gone))
    gone &= ~is_skipped
    is_pruned = gone & seen.is_pruned(start, start + len(gone), look.layer)
    is_inside = np.zeros(len(gone), bool)
    is_inside[slice(*(max(edge - start, 0) for edge in in_host))] = True

    edges = np.arange(0, len(gone), size)

    def count(which: npt.NDArray[np.bool_]) -> Ints:
        found = np.zeros(len(firsts), np.int64)
        if len(edges):
            found[: len(edges)] = np.add.reduceat(which, edges, dtype=np.int64)
        return found

    counts[:, State.PRUNED] = count(is_pruned)
    counts[:, State.IN_HOST] = count(gone & ~is_pruned & is_inside)
    counts[:, State.EVICTED] = count(gone & ~is_pruned & ~is_inside)
    counts[:, State.SKIPPED] = count(is_skipped)
    counts[:, State.UNREAD] = (lasts - firsts) - counts[:, 1:].sum(axis=1)
