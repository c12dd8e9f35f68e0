"""The slot of one more token in every layer, as the shorter way for one token takes it: views, laid out once."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ondevice.kernels.codes import Coded, Frame, encode
from ondevice.pot.memory_pot import MemoryPot
from ondevice.pot.slots import CodedSlots, WideSlots


class NextSlot(NamedTuple):
    """One layer's slot for the token, and what that attends to.

    `keys_values` (2, batch, num_kv_heads, 1, head_dim) before RoPE, `rotated` (batch, num_kv_heads, 1, head_dim) the
    key after RoPE; `seen_keys` (after RoPE) and `seen_values` (batch, num_kv_heads, num_used, head_dim).
    """

    keys_values: Tensor
    rotated: Tensor
    seen_keys: Tensor
    seen_values: Tensor

    def write_(self, keys_values: Tensor, rotated: Tensor) -> None:
        """Store the token; shapes as those of the attributes."""
        self.keys_values.copy_(keys_values)
        self.rotated.copy_(rotated)


class NextCodes(NamedTuple):
    """The same in 8 bits.

    `codes` (2, batch, num_kv_heads, 1, head_dim) and `scales` (2, batch, num_kv_heads, 1) of the key before RoPE and of
    the value, which are measured from `mean` in parts of `spread`, (2, 1, num_kv_heads, 1, head_dim) each; `seen`, and
    its `positions` (batch or 1, num_kv_heads or 1, num_used).
    """

    codes: Tensor
    scales: Tensor
    mean: Tensor
    spread: Tensor
    seen: Coded
    positions: Tensor

    def write_(self, keys_values: Tensor) -> None:
        """Store the token, (2, batch, num_kv_heads, 1, head_dim) float32."""
        codes, scales = encode((keys_values - self.mean).div_(self.spread))
        self.codes.copy_(codes)
        self.scales.copy_(scales)


def next_slots(pot: MemoryPot) -> list[NextSlot] | list[NextCodes] | None:
    """The next free slot of every layer, or the victim that all heads share, to be written directly.

    That does what `append_` does for one token, for all layers at once; `commit_` counts it. None where keys after RoPE
    are not stored, heads give up different slots, or codes are not of 8 bits or take the place of others.
    """
    if isinstance(pot.victims, list):
        return None
    if isinstance(pot.slots, WideSlots):
        return _wide(pot, pot.slots) if pot.rotated else None
    has_bytes = pot.shape.code_bits == (8, 8)
    return _codes(pot, pot.slots) if has_bytes and pot.victims is None else None


def _wide(pot: MemoryPot, slots: WideSlots) -> list[NextSlot]:
    found: list[NextSlot] = []
    for layers, used in pot.layers_by_length():
        storage = slots.whole(layers)
        at = slice(used, used + 1) if not isinstance(pot.victims, slice) else pot.victims
        end = used + (pot.victims is None)
        assert end <= storage.shape[-2]
        keys_values, rotated = storage[:2, :, :, :, at].unbind(1), storage[2, :, :, :, at].unbind(0)
        seen_values, seen_keys = storage[1:, :, :, :, :end]
        found += map(NextSlot, keys_values, rotated, seen_keys.unbind(0), seen_values.unbind(0))
    return found


def _codes(pot: MemoryPot, slots: CodedSlots) -> list[NextCodes]:
    found: list[NextCodes] = []
    for layers, used in pot.layers_by_length():
        codes, scales = slots.storage(layers)
        end = used + 1
        assert end <= codes.shape[-2]
        # Attention looks up where the token stands before it is counted.
        pot.positions[layers, :, :, used:end] = pot.next_position[layers.start]
        positions = pot.positions[layers, :, :, :end]
        if pot.is_uniform:
            positions = positions[:, :1, :1]
        frame = Frame(*(part[layers] for part in slots.frame))
        # A value is rounded from 0 on, in parts of 1.
        mean = torch.stack((frame.mean, torch.zeros_like(frame.mean)), dim=1)[:, :, None, :, None]
        spread = torch.stack((frame.spread, torch.ones_like(frame.spread)), dim=1)[:, :, None, :, None]
        seen = [part.unbind(0) for part in (*codes[:, :, :, :, :end], *scales[:, :, :, :, :end])]
        frames = map(Frame, *(part.unbind(0) for part in frame))
        found += map(
            NextCodes,
            codes[:, :, :, :, used:end].unbind(1),
            scales[:, :, :, :, used:end].unbind(1),
            mean.unbind(0),
            spread.unbind(0),
            map(Coded, *seen, frames),
            positions.unbind(0),
        )
    return found
