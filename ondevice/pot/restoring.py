"""A pot filled with what another one held, which may come from anybody's file."""

from __future__ import annotations

from torch import Tensor

from ondevice.pot.memory_pot import MemoryPot
from ondevice.pot.native_state import PREFIX
from ondevice.pot.numbering import refresh_keys_
from ondevice.pot.saved_state import Extent, check_pot
from ondevice.pot.shape import PROVENANCE


def restore_(pot: MemoryPot, state: dict[str, Tensor], extent: Extent) -> None:
    """Fill a pot, in place, with what `MemoryPot.state` gave; keys after RoPE are computed again.

    Args:
        extent: of the document that was read.

    Raises:
        DamagedPot: no pot of this shape and type can have that state; it is as it was.
    """
    native = {name: tensor for name, tensor in state.items() if name.startswith(PREFIX)}
    state = {name: tensor for name, tensor in state.items() if name not in native}
    buffers = zip(pot.slots.names, pot.slots.layers[0], strict=False)
    check_pot(state, pot.shape, {name: (one.dtype, tuple(one.shape[3:])) for name, one in buffers}, extent)
    pot.native.load_(native)
    layers = pot.shape.layers
    pot.clear_(layers, 0, max(pot.num_cached))
    pot.num_cached, pot.next_position = state["num_cached"].tolist(), state["next_position"].tolist()
    pot.num_ranked = state["num_ranked"].tolist()
    for name, buffer in zip(PROVENANCE, pot.provenance(), strict=True):
        buffer[..., : max(pot.num_cached)] = state[name]
    for layer, used in enumerate(pot.num_cached):
        for name, buffer in zip(pot.slots.names, pot.slots.layers[layer], strict=False):
            buffer[:, :, :used] = state[f"{name}.{layer}"]
    pot.is_uniform = bool((pot.positions == pot.positions[:, :1, :1]).all())
    refresh_keys_(pot, layers)
