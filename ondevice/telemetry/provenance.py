"""Provenance: the document tokens that the pot holds, where, and why. A picture that any thread may look at.

A pot changes while the model works. The thread that drives the engine takes a picture between two events, when nothing
moves; it holds copies of a few numbers for each slot and never a key or a value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from ondevice.context import Context
from ondevice.pot.memory_pot import MemoryPot
from ondevice.pot.shape import UNKNOWN

Span = tuple[int, int]
NOWHERE: Span = (0, 0)


@dataclass(frozen=True, slots=True)
class Provenance:
    """The pot at one moment. Spans are [start, stop) of document tokens.

    Attributes:
        num_layers, num_heads: KV heads are meant.
        num_positions: tokens up to the cursor.
        num_settled: tokens below this went through a distillation; those after it are all held as far as they got.
        num_cycles: distillations so far.
        num_sinks: tokens below this are never evicted.
        skims: whether a speculator leaves out tokens; `depths` has those at 0.
        in_host: tokens that host memory holds a copy of.
        host_capacity: tokens that host memory has room for; 0: there is none.
        origin: (layers, heads, num_kept) int32, settled token of each slot, negative where there is none.
        importance: as `origin`, float32, attention received at the last distillation; infinite where protected.
        is_novel: as `origin`, bool: chosen for its novelty.
        depths: (num_positions,) uint16, layers that each token got to; empty where all of them got through.
        tokens, counts: settled tokens that some head holds, rising, and how many (layer, head) pairs do.
        novel: those of them, (n,) int32, that novelty chose in some head.
    """

    num_layers: int
    num_heads: int
    num_positions: int = 0
    num_settled: int = 0
    num_cycles: int = 0
    num_sinks: int = 0
    skims: bool = False
    in_host: Span = NOWHERE
    host_capacity: int = 0
    origin: npt.NDArray[np.int32] = field(default_factory=lambda: np.empty((0, 0, 0), np.int32))
    importance: npt.NDArray[np.float32] = field(default_factory=lambda: np.empty((0, 0, 0), np.float32))
    is_novel: npt.NDArray[np.bool_] = field(default_factory=lambda: np.empty((0, 0, 0), bool))
    depths: npt.NDArray[np.uint16] = field(default_factory=lambda: np.empty(0, np.uint16))
    tokens: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    counts: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    novel: npt.NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))

    @property
    def num_pairs(self) -> int:
        """(layer, head) pairs."""
        return self.num_layers * self.num_heads

    def moved_to(self, context: Context) -> Provenance:
        """The same settled tokens, with what was read since the last distillation."""
        depths, in_host = context.depths.state, _host_span(context)
        return replace(self, num_positions=context.num_positions, depths=depths, in_host=in_host)

    def answering(self, context: Context) -> Provenance:
        """The pot while an answer is written: what came back for it is held, and what was put aside is not."""
        origin, importance, _ = _slots(context.pot, context.pot.num_cached)
        tokens, counts = np.unique(origin[origin >= 0], return_counts=True)
        is_novel = np.zeros(origin.shape, bool)
        for head in np.ndindex(origin.shape[:2]):
            is_novel[head] = np.isin(origin[head], self.origin[head][self.is_novel[head]])
        return replace(
            self,
            num_settled=self.num_positions,
            origin=origin,
            importance=importance,
            is_novel=is_novel,
            tokens=tokens.astype(np.int64),
            counts=counts.astype(np.int64),
        )

    def held(
        self, start: int, stop: int, layer: int | None = None, head: int | None = None
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        """The tokens of [start, stop) that are held, rising, and the share of the chosen heads that hold each.

        Args:
            layer: look at this layer alone.
            head: look at this head of the layer, or of every layer, alone.
        """
        settled, shares = self.tokens, self.counts / max(self.num_pairs, 1)
        if (layer is not None or head is not None) and self.origin.size:
            part = self.origin[_chosen(layer), _chosen(head)]
            settled, counts = np.unique(part[part >= 0], return_counts=True)
            shares = counts / (part.shape[0] * part.shape[1])
        first, last = np.searchsorted(settled, (start, stop))
        begin = max(start, self.num_settled)
        recent = np.arange(begin, max(min(stop, self.num_positions), begin))
        depths = self._depths_within(begin, begin + len(recent))
        got = depths / self.num_layers if layer is None else (depths > layer).astype(float)
        tokens = np.concatenate((settled[first:last].astype(np.int64), recent[got > 0]))
        return tokens, np.concatenate((shares[first:last], got[got > 0]))

    def novel_tokens(self, layer: int | None = None, head: int | None = None) -> npt.NDArray[np.int32]:
        """Settled tokens that novelty chose in the chosen heads, as in `held`; rising."""
        if layer is None and head is None:
            return self.novel
        part = _chosen(layer), _chosen(head)
        chosen = self.origin[part][self.is_novel[part]]
        return np.unique(chosen[chosen >= 0])

    def is_pruned(self, start: int, stop: int, layer: int | None = None) -> npt.NDArray[np.bool_]:
        """True for each token of [start, stop) that was dropped before a layer; None: before the last one."""
        if not self.depths.size:
            return np.zeros(stop - start, bool)
        depths = self._depths_within(start, stop)
        return (depths > 0) & (depths <= (self.num_layers - 1 if layer is None else layer))

    def is_skipped(self, start: int, stop: int) -> npt.NDArray[np.bool_]:
        """True for each token of [start, stop) that was passed over."""
        return self._depths_within(start, stop) == 0 if self.skims else np.zeros(stop - start, bool)

    def num_special(self) -> dict[str, int]:
        """Number of tokens in each state beside "kept" and "evicted", by its name in the map.

        The host tier counts all it has a copy of, also of what the pot holds still.
        """
        pruned = np.count_nonzero((self.depths > 0) & (self.depths < self.num_layers))
        skipped = np.count_nonzero(self.depths == 0) if self.skims else 0
        host = self.in_host[1] - self.in_host[0]
        return {"novel": len(self.novel), "host": host, "pruned": int(pruned), "skipped": int(skipped)}

    def host_span_at(self, cursor: int) -> Span:
        """The span that host memory held when the cursor was there: the last tokens read before it."""
        cursor = min(cursor, self.in_host[1])  # the last tokens may stay in the pot, and need no copy
        if not self.host_capacity or cursor <= 0:
            return NOWHERE
        if not self.skims:
            return max(cursor - self.host_capacity, 0), cursor
        read = np.flatnonzero(~self.is_skipped(0, cursor))
        return int(read[max(len(read) - self.host_capacity, 0)]) if len(read) else cursor, cursor

    def holders(self, token: int) -> npt.NDArray[np.uint8]:
        """Heads that hold a token: (layers, heads), 0 = not held, 1 = held, 2 = held because it was new."""
        grid = np.zeros((self.num_layers, self.num_heads), np.uint8)
        if self.num_settled <= token < self.num_positions:
            grid[: int(self._depths_within(token, token + 1)[0])] = 1
        elif self.origin.size:
            is_here = self.origin == token
            grid[is_here.any(axis=-1)] = 1
            grid[(is_here & self.is_novel).any(axis=-1)] = 2
        return grid

    def score(self, token: int) -> float | None:
        """The most attention that any head holding a token gave it at the last distillation; None where unknown."""
        given = self.importance[self.origin == token] if self.origin.size else np.empty(0, np.float32)
        given = given[np.isfinite(given)]
        return float(given.max()) if given.size and self.num_cycles else None

    def _depths_within(self, start: int, stop: int) -> npt.NDArray[np.uint16]:
        """Layers that each of the tokens [start, stop) got to."""
        depths, noted = np.full(stop - start, self.num_layers, np.uint16), self.depths[start:stop]
        depths[: len(noted)] = noted
        # Nothing was noted while nothing was pruned: those tokens got through.
        return depths if self.skims else np.where(depths == 0, np.uint16(self.num_layers), depths)


def take_provenance(context: Context) -> Provenance:
    """The pot as it is now. Only between two events of its session, in the thread that drives it."""
    parts = context.decoder.parts
    empty = Provenance(num_layers=len(parts.layers), num_heads=parts.num_kv_heads)
    if not context.has_pot or not context.is_open:
        return empty
    pot = context.pot
    # What a distillation laid out comes first; after it lies what was read since.
    ranked = max(pot.num_ranked)
    origin, importance, novelty = _slots(pot, pot.num_ranked)
    num_ranked = np.repeat(pot.num_ranked, pot.shape.num_kv_heads).reshape(origin.shape[:2])
    tokens, counts = np.unique(origin[origin >= 0], return_counts=True)
    is_novel = _novel_slots(context, novelty, num_ranked)
    num_sinks = max(context.num_protected - len(context.chat.prefix), 0)
    return replace(
        empty,
        num_positions=context.num_positions,
        num_settled=_num_settled(context, ranked),
        num_cycles=context.num_cycles,
        num_sinks=num_sinks,
        skims=context.speculator is not None,
        in_host=_host_span(context),
        host_capacity=0 if context.host is None else context.host.tier.capacity,
        origin=origin,
        importance=importance,
        is_novel=is_novel,
        novel=np.unique(origin[is_novel & (origin >= 0)]),
        depths=context.depths.state,
        tokens=tokens.astype(np.int64),
        counts=counts.astype(np.int64),
    )


def _chosen(index: int | None) -> slice:
    """One layer or head; None: all of them."""
    return slice(None) if index is None else slice(index, index + 1)


def _slots(
    pot: MemoryPot, counts: Sequence[int]
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Copies of origin, importance and novelty, (layers, heads, slots), of the first `counts` slots of each
    layer of the pot; the origin of others is negative."""
    shape, most = pot.shape, max(counts)
    by_head = (shape.num_layers // shape.pot_layers_per_layer, shape.pot_layers_per_layer * shape.num_kv_heads)
    buffers = (buffer[:, 0, :, :most].cpu().numpy() for buffer in (pot.origin, pot.importance, pot.novelty))
    origin, importance, novelty = (buffer.reshape(*by_head, most).copy() for buffer in buffers)
    num_used = np.repeat(counts, shape.num_kv_heads).reshape(by_head)
    origin[np.arange(most) >= num_used[..., None]] = -1
    return origin, importance, novelty


def _num_settled(context: Context, ranked: int) -> int:
    """The first token that no distillation has seen, or the cursor."""
    if not context.num_cycles:
        return 0
    later = context.pot.origin[..., ranked:].cpu().numpy()
    later = later[later >= 0]
    return int(later.min()) if later.size else context.num_positions


def _novel_slots(
    context: Context, novelty: npt.NDArray[np.float32], num_ranked: npt.NDArray[np.int64]
) -> npt.NDArray[np.bool_]:
    """Slots that novelty chose: the most novel ones of all whose novelty is known, and those are still here.

    Of tokens that are equally novel no more count than novelty had slots for.
    """
    config, is_novel = context.config.pot, np.zeros(novelty.shape, bool)
    if config.method.novelty != "share" or not config.novelty:
        return is_novel
    for head in np.ndindex(num_ranked.shape):
        num_kept = int(num_ranked[head])
        num_novel = round(config.novelty * num_kept)
        if not num_novel:
            continue
        novelties = novelty[head][:num_kept]
        most = np.argpartition(novelties, num_kept - num_novel)[num_kept - num_novel :]
        is_novel[head][most] = novelties[most] != UNKNOWN
    return is_novel


def _host_span(context: Context) -> Span:
    """The tokens in the host tier: the ring of the first layer has had all that were copied, and holds the last."""
    if context.host is None:
        return NOWHERE
    held = context.host.tier.origin(0).numpy()
    return (int(held.min()), int(held.max()) + 1) if held.size else NOWHERE
