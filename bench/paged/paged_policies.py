"""Slots that the next tokens overwrite in a paged pot: the recent ring after the sinks, or the least heavy hitter.

A policy has one method, `evict`: the slots that n new tokens of each sequence take, as `PagedPot.replace` wants them.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ondevice_bench.paged.paged_pot import PagedPot


class SinkRecentRing:
    """Sinks and the most recent tokens (arXiv 2309.17453): the oldest slot after the sinks goes, in a ring.

    Position p stands in slot num_sink_tokens + (p - num_sink_tokens) % window_size, first by being appended and
    then by replacement, so that the ring needs no state of its own.

    Args:
        pot: the pot; its sinks stay. A sequence evicts once it holds num_sink_tokens + window_size slots.
        window_size: recent tokens kept, the newest among them.
    """

    def __init__(self, pot: PagedPot, *, window_size: int) -> None:
        self._pot = pot
        self.window_size = window_size

    def evict(self, num_tokens: int, *, rows: Sequence[int] | None = None) -> Tensor:
        """Return (rows, n) int64, the same for all layers and heads."""
        assert num_tokens <= self.window_size
        num_sinks = self._pot.shape.num_sink_tokens
        turn = self._next_positions(rows) - num_sinks + torch.arange(num_tokens, device=self._pot.lengths.device)
        return num_sinks + turn % self.window_size

    def sink_positions(self, num_tokens: int, *, rows: Sequence[int] | None = None) -> Tensor:
        """Positions (rows, num_sink_tokens) int32 just before the window that n more tokens leave."""
        num_sinks = self._pot.shape.num_sink_tokens
        steps = torch.arange(num_sinks, device=self._pot.lengths.device)
        return (self._next_positions(rows) + num_tokens - self.window_size - num_sinks + steps).int()

    def _next_positions(self, rows: Sequence[int] | None) -> Tensor:
        positions = torch.tensor(self._pot.next_position, device=self._pot.lengths.device)
        return (positions if rows is None else positions[list(rows)])[:, None]


class HeavyHitters:
    """Attention mass accumulated over all queries (H2O, arXiv 2306.14048): each head evicts its own lightest slots.

    Args:
        pot: the pot; its sinks stay, if it has any.
        window_size: most recent tokens that are never evicted.

    Attributes:
        mass: (batch, layers, kv_heads, max_slots) float32, by logical slot.
    """

    def __init__(self, pot: PagedPot, *, window_size: int) -> None:
        self._pot = pot
        self.window_size = window_size
        shape = pot.shape
        size = (shape.batch, shape.num_layers, shape.num_kv_heads, shape.max_slots)
        self.mass = torch.zeros(size, dtype=torch.float32, device=pot.lengths.device)

    def observe(self, layer: int, mass: Tensor, *, rows: Sequence[int] | None = None) -> None:
        """Add the mass (rows, kv_heads, n) that the first n slots of each sequence received in a layer."""
        chosen = slice(None) if rows is None else list(rows)
        self.mass[chosen, layer, :, : mass.shape[-1]] += mass

    def evict(self, num_tokens: int, *, rows: Sequence[int] | None = None) -> Tensor:
        """Return (rows, layers, kv_heads, n) int64; the mass of these slots starts again from 0."""
        chosen = list(range(self._pot.shape.batch)) if rows is None else list(rows)
        for row in chosen:
            num_open = self._pot.num_cached[row] - self._pot.shape.num_sink_tokens - self.window_size
            assert num_tokens <= num_open, f"{num_tokens} tokens cannot replace {num_open} slots"
        mass = self.mass[chosen]
        slots = mass.masked_fill(self._protected()[chosen], torch.inf).topk(num_tokens, largest=False).indices
        self.mass[chosen] = mass.scatter_(-1, slots, 0.0)
        return slots

    def forget(self, row: int) -> None:
        """Drop what a finished sequence has accumulated."""
        self.mass[row] = 0

    def _protected(self) -> Tensor:
        """(batch, layers, kv_heads, max_slots) bool: sinks, recent tokens, slots that are not used."""
        pot = self._pot
        slot = torch.arange(pot.shape.max_slots, device=pot.lengths.device)
        first_recent = torch.tensor(pot.next_position, device=slot.device) - self.window_size
        recent = pot.logical(pot.positions) >= first_recent[:, None, None, None]
        kept = (slot < pot.shape.num_sink_tokens) | (slot >= pot.lengths[:, None])
        return recent | kept[:, None, None]
