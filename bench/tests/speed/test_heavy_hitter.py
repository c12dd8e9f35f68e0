"""H2O in a memory pot: the slots it gives up are those that gathering the rest would leave out."""

from __future__ import annotations

import pytest
import torch

from ondevice.model.decoder import Decoder
from ondevice_bench.speed.equip.heavy_hitter import HeavyHitter
from tests.builders.grids import KEY_ROTATIONS, first_of
from tests.builders.models import tiny_model

CAPACITY, SINKS = 40, 4


def _ids(num_tokens, batch=1):
    return torch.randint(0, 256, (batch, num_tokens), generator=torch.Generator().manual_seed(5))


@pytest.mark.parametrize("key_rotation", first_of(*KEY_ROTATIONS))
def test_heavy_hitters_in_place_equal_gathering_the_rest(key_rotation):
    """Head by head: drop the least attended slot, keep the others in order, append the new token."""
    decoder, num_recent = Decoder(tiny_model("llama")), 8
    ids = _ids(CAPACITY, 2)
    pot = decoder.new_pot(CAPACITY, batch=2, key_rotation=key_rotation)
    mass = decoder.forward(ids, pot, num_observed=CAPACITY).mass
    eviction = HeavyHitter(pot, SINKS, num_recent, max_positions=10_000, mass=mass)
    kept = [[list(range(CAPACITY)) for _ in range(4)] for _ in range(3)]
    scores = [[dict(enumerate(row)) for row in layer.flatten(0, 1).tolist()] for layer in mass]
    for step in range(50):
        now = CAPACITY + step
        eviction.make_room()
        for layer in range(3):
            for row in range(4):
                open_tokens = [t for t in kept[layer][row][SINKS:] if t < now - num_recent]
                gone = min(open_tokens, key=scores[layer][row].__getitem__)
                kept[layer][row].remove(gone)
                kept[layer][row].append(now)
                scores[layer][row][now] = 0.0
        out = decoder.forward(_ids(1, 2), pot, num_observed=1, origin=0)
        eviction.observe(out.mass)
        for layer in range(3):
            positions = pot.positions[layer].flatten(0, 1)
            mass = out.mass[layer].flatten(0, 1)
            for row in range(4):
                assert sorted(positions[row].tolist()) == kept[layer][row]
                for token, received in zip(positions[row].tolist(), mass[row].tolist(), strict=True):
                    scores[layer][row][token] += received
