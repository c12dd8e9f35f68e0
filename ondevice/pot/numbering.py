"""Positions of what a pot holds, numbered again, and its keys rotated for them (CR-RoPE; InfiniPot, section 3.5)."""

from __future__ import annotations

import torch

from ondevice.kernels.rope import rotate_half
from ondevice.pot.memory_pot import MemoryPot
from ondevice.pot.slots import within


def number_by_origin_(pot: MemoryPot, layers: slice | None = None) -> None:
    """Number positions by the order in the document, the prompt first, and rotate keys for it; None: in all layers.

    They are ranks, as in `number_in_order_`.
    """
    layers = layers or pot.shape.layers
    for layer in range(layers.start, layers.stop):
        used = pot.num_cached[layer]
        origin, positions = pot.origin[layer, ..., :used], pot.positions[layer, ..., :used]
        before_document = positions - pot.next_position[layer]  # the prompt's slots keep their order
        positions.copy_(torch.where(origin < 0, before_document, origin))
    number_in_order_(pot, layers)


def number_in_order_(pot: MemoryPot, layers: slice | None = None) -> None:
    """Number positions from 0 again, in their order, and rotate keys for it; None: in all layers (CR-RoPE).

    They become ranks. Heads of a layer that hold different numbers of tokens still end at the same position, so
    that what follows stands at one for all of them: those that hold fewer have a gap after what is protected.

    Args:
        layers: of the pot, with all that lie in the same layer of the model.
    """
    layers = layers or pot.shape.layers
    for same, used in pot.layers_by_length():
        own = within(layers, same)
        positions = pot.positions[same][own, ..., :used]
        positions.copy_(positions.argsort(dim=-1).argsort(dim=-1))
    for layer in range(layers.start, layers.stop):
        used = pot.num_cached[layer]
        end = max(pot.num_cached[part] for part in pot.shape.parts_of(layer // pot.shape.pot_layers_per_layer))
        if end > used:
            positions = pot.positions[layer, ..., :used]
            positions += (end - used) * (positions >= pot.num_protected)
        pot.next_position[layer] = end
    refresh_keys_(pot, layers)


def refresh_keys_(pot: MemoryPot, layers: slice) -> None:
    """Compute again what is kept beside the keys of some layers, from keys and positions."""
    for same, used in pot.layers_by_length() if pot.rotated or pot.halves else ():
        own = within(layers, same)
        alike = slice(same.start + own.start, same.start + own.stop)
        runs = pot.shape.alike(alike) if used else ()
        for some in (piece for run in runs for piece in pot.pieces(run, used)):
            if pot.halves:
                keys, _, beside = (buffer[..., :used, :] for buffer in pot.slots.of(some))
                beside.copy_(rotate_half(keys, pot.shape.rotary_dim))
            else:
                _turn_(pot, some, slice(0, used))


def rotate_slots_(pot: MemoryPot, layers: slice, slots: slice) -> None:
    """Rotate a few slots of some layers again, after their positions changed; nothing to do where no key is kept
    after RoPE.
    """
    for same in pot.slots.groups if pot.rotated else ():
        own = within(layers, same)
        for some in pot.shape.alike(slice(same.start + own.start, same.start + own.stop)):
            _turn_(pot, some, slots)


def _turn_(pot: MemoryPot, some: slice, slots: slice) -> None:
    """Compute the keys after RoPE again in some slots of layers that share one."""
    keys, _, rotated = (buffer[..., slots, :] for buffer in pot.slots.of(some))
    positions = pot.positions[some, ..., slots].flatten(0, 1)
    end, rope = max(pot.next_position[some]), pot.shape.rope_of(some.start)
    rotated.copy_(pot.rotate_keys(keys.flatten(0, 1), positions, pot.max_positions, end, rope).view(keys.shape))
