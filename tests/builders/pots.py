"""What holds for every pot, whatever was done with it."""

from __future__ import annotations

from ondevice.pot.memory_pot import MemoryPot
from ondevice.pot.shape import FREE, UNKNOWN


def check_invariants(pot: MemoryPot, num_tokens: int) -> None:
    """Assert the invariants of a pot, for a document of `num_tokens` tokens read so far."""
    assert pot.positions.shape[0] == pot.shape.num_layers == len(pot.num_cached)
    for layer, used in enumerate(pot.num_cached):
        assert 0 <= used <= pot.capacities[layer]
        origin = pot.origin[layer]
        assert bool((origin[:, :, used:] == FREE).all()), "a free slot has an origin"
        assert not bool((origin[:, :, :used] == FREE).any()), "a used slot has no origin"
        assert int(origin.max()) < max(num_tokens, 1), "a slot holds a token that was never read"
        novelty = pot.novelty[layer, :, :, :used]
        assert bool(((novelty >= 0) | (novelty == UNKNOWN)).all()), "a novelty is neither known nor unknown"
        for buffer in pot.layer_buffers(layer):
            if buffer.data_ptr() != origin.data_ptr():
                assert not bool(buffer[:, :, used:].any()), "a free slot holds data"
        for row in origin[:, :, :used].flatten(0, 1):
            tokens = row[row >= 0]
            assert tokens.unique().numel() == tokens.numel(), "a head holds a token twice"
        for row in pot.positions[layer][:, :, :used].flatten(0, 1):
            assert row.unique().numel() == row.numel(), "two slots share a position"
            assert used == 0 or int(row.max()) < pot.next_position[layer]
