"""The contenders of the decoding benchmark: a cache with its eviction rule, and the one loop that drives them all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from ondevice.config import KeyRotation
from ondevice.errors import ConfigError
from ondevice.model.decoder import Decoder
from ondevice.model.passes import Cache
from ondevice.pot.eviction import Eviction, LongAnswer, SinkRecent
from ondevice.pot.memory_pot import MemoryPot
from ondevice.pot.shape import PROMPT
from ondevice_bench.speed.equip.baselines import GatherAppendCache, ShiftAppendCache
from ondevice_bench.speed.equip.heavy_hitter import HeavyHitter

STREAMING, H2O = "StreamingLLM", "H2O"
EQUIP = "EQUIP "  # before the name of what it does in place
NUM_SINKS = 4
_PREFILL_STEP = 256


class SizedCache(Cache, Protocol):
    """A cache that knows its size."""

    @property
    def nbytes(self) -> int: ...


@dataclass(slots=True)
class Side:
    """One contender.

    Attributes:
        name: in the rows.
        decoder: shared by all contenders: the same weights, the same arithmetic but for the cache.
        cache: of the same capacity for all.
        rule: what the cache gives up; a baseline is its own. One that has `observe` is told what tokens attend to.
        capacity: tokens cached at most.
    """

    name: str
    decoder: Decoder
    cache: SizedCache
    rule: Eviction
    capacity: int

    @torch.inference_mode()
    def step(self, ids: Tensor) -> Tensor:
        """Run tokens (batch, n) through the model, evicting what does not fit; returns logits (batch, n, vocab)."""
        num_tokens = ids.shape[1]
        if self.cache.num_cached[0] + num_tokens > self.capacity:
            self.rule.make_room()
        observe = getattr(self.rule, "observe", None)
        out = self.decoder.forward(ids, self.cache, num_observed=num_tokens if observe else 0)
        if observe:
            observe(out.mass)
        return self.decoder.head.logits(out.hidden_states)

    @torch.inference_mode()
    def fill(self, source: MemoryPot, num_cached: int, batch: int) -> None:
        """Put the tokens of a pot that are missing up to `num_cached` into this cache, the same in the whole batch."""
        start = self.cache.num_cached[0]
        if start >= num_cached:
            return
        for layer in range(len(source.keys)):
            new = (buffers[layer][:, :, start:num_cached] for buffers in (source.keys, source.rotated, source.values))
            self.cache.append_(layer, *(tensor.expand(batch, -1, -1, -1) for tensor in new))
        self.cache.commit_(num_cached - start, PROMPT)
        if observe := getattr(self.rule, "observe", None):
            shape = (batch, source.shape.num_kv_heads, num_cached)
            generator = torch.Generator().manual_seed(num_cached)
            mass = [torch.rand(shape, generator=generator) for _ in source.keys]
            observe([received.to(self.decoder.device) for received in mass])


Builder = Callable[[Decoder, int, int], Side]  # of a decoder, a capacity and a batch size


def shift_append(decoder: Decoder, capacity: int, batch: int) -> Side:
    """StreamingLLM by copies."""
    cache = ShiftAppendCache(len(decoder.parts.layers), capacity, NUM_SINKS, *plain_angles(decoder, capacity))
    return Side(STREAMING, decoder, cache, cache, capacity)


def shift_append_halves(decoder: Decoder, capacity: int, batch: int) -> Side:
    """StreamingLLM by copies, of `rotate_half(keys)` too: RoPE caching alone."""
    angles = plain_angles(decoder, capacity)
    cache = ShiftAppendCache(len(decoder.parts.layers), capacity, NUM_SINKS, *angles, caches_halves=True)
    return Side(f"{STREAMING} + RoPE caching", decoder, cache, cache, capacity)


def in_place(key_rotation: KeyRotation, name: str = EQUIP + STREAMING) -> Builder:
    """StreamingLLM in a memory pot."""

    def build(decoder: Decoder, capacity: int, batch: int) -> Side:
        pot = decoder.new_pot(capacity, batch, key_rotation)
        pot.num_protected = NUM_SINKS
        rule = SinkRecent(LongAnswer(pot, pot.max_positions))
        return Side(name, decoder, pot, rule, capacity)

    return build


def gather_append(decoder: Decoder, capacity: int, batch: int) -> Side:
    """H2O by copies: half of the cache for heavy hitters, half for recent tokens."""
    cache = GatherAppendCache(len(decoder.parts.layers), capacity, 0, capacity // 2)
    return Side(H2O, decoder, cache, cache, capacity)


def in_place_heavy(decoder: Decoder, capacity: int, batch: int) -> Side:
    """H2O in a memory pot."""
    pot = decoder.new_pot(capacity, batch)
    # Positions are never numbered again, as in the other contender.
    rule = HeavyHitter(pot, 0, capacity // 2, max_positions=1 << 30)
    return Side(EQUIP + H2O, decoder, pot, rule, capacity)


PAIRS: dict[str, tuple[Builder, Builder]] = {
    STREAMING: (shift_append, in_place("stored")),
    H2O: (gather_append, in_place_heavy),
}


def new_decoder(model: object) -> Decoder:
    """A decoder that both sides of a comparison can share.

    Raises:
        ConfigError: the baselines do not know how the model attends.
    """
    decoder = Decoder(model, has_fast_step=False)  # a way of its own for one token in a pot would be half a comparison
    parts = decoder.parts
    if any(layer.sliding_window for layer in parts.layers) or plain_angles(decoder, 1)[0].shape[-1] < parts.head_dim:
        raise ConfigError(
            "The contenders of bench equip know no sliding windows and no partial RoPE", fix="Name another --model."
        )
    return decoder


def prefilled(decoder: Decoder, num_tokens: int, seed: int = 0) -> MemoryPot:
    """A pot of one sequence with random tokens in it: what all caches are filled from."""
    pot = decoder.new_pot(num_tokens)
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, decoder.parts.vocab_size, (1, num_tokens), generator=generator).to(decoder.device)
    for part in ids.split(_PREFILL_STEP, dim=1):
        decoder.forward(part, pot)
    return pot


def plain_angles(decoder: Decoder, num_positions: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines of positions 0..num_positions-1, each (num_positions, rotary_dim)."""
    positions = torch.arange(num_positions, device=decoder.device)
    cos, sin = decoder.parts.rotary(torch.empty(0, dtype=decoder.dtype, device=decoder.device), positions[None])
    return cos[0], sin[0]
