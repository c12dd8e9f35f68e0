"""Storage of a pot's slots: keys and values as the model computes them, or quantised.

All that moves slots about (distillation, undo, saving) moves the buffers of a layer alike, whatever they hold; only
here it is known what that is. Nothing is allocated after construction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from ondevice.errors import DamagedPot
from ondevice.kernels.codes import Coded, Frame, around, encode
from ondevice.kernels.pot_update import replace_slots_
from ondevice.kernels.rope import rotate_half
from ondevice.pot.saved_state import check_finite, check_names, take
from ondevice.pot.shape import Kind, PotShape

At = slice | Tensor


class Slots:
    """Buffers of all layers; layers of one size lie in one tensor each, so that one call may change several.

    Attributes:
        names: of the buffers of a layer that have to be kept; what may follow them is computed from those.
        capacities: slots of each layer.
        layers: the buffers of each layer, (batch, kv_heads, capacity, ...), in the order of the names.
    """

    names: tuple[str, ...]

    def __init__(self, shape: PotShape, kinds: Sequence[Kind], device: torch.device) -> None:
        self._shape, self._groups = shape, list[tuple[slice, list[Tensor]]]()
        self.layers: list[list[Tensor]] = []
        for layers, capacity in shape.groups():
            size = (layers.stop - layers.start, shape.batch, shape.kv_size[1], capacity)
            storage: list[Tensor] = []
            for dtype, rest in dict.fromkeys(kinds):  # those of one kind lie in one tensor
                storage.append(torch.zeros(kinds.count((dtype, rest)), *size, *rest, dtype=dtype, device=device))
            self._groups.append((layers, storage))
            buffers = [buffer for whole in storage for buffer in whole.unbind()]
            self.layers += [[buffer[index] for buffer in buffers] for index in range(size[0])]
        self.capacities = [buffers[0].shape[2] for buffers in self.layers]

    @property
    def groups(self) -> list[slice]:
        """Runs of neighbouring layers of one size: usually one run."""
        return [layers for layers, _ in self._groups]

    def of(self, layers: slice) -> list[Tensor]:
        """The buffers (layers, batch, kv_heads, capacity, ...) of some layers of one size."""
        group, storage = next(item for item in self._groups if layers.start < item[0].stop)
        return [buffer for whole in storage for buffer in whole[:, within(layers, group)].unbind()]

    def clear_(self, layers: slice, start: int, end: int) -> None:
        """Write zeros into slots of some layers."""
        for group, storage in self._groups:
            for whole in storage:
                whole[:, within(layers, group), :, :, start:end] = 0

    def put_(self, layer: int, at: At, parts: Sequence[Tensor]) -> None:
        """Write what `names` says into slots of a layer; each part (batch, kv_heads, n, ...)."""
        for buffer, part in zip(self.layers[layer], parts, strict=False):
            replace_slots_(buffer, at, part)


class WideSlots(Slots):
    """Keys before RoPE and values in the model's type, and with them what saves a rotation at every step.

    Attributes:
        keys, values: one tensor a layer, (batch, kv_heads, capacity of the layer, dim).
        rotated: as `keys`, after RoPE; only where `key_rotation` is "stored".
        halves: as `keys`, `rotate_half` of them; only where `key_rotation` is "half-cache".
    """

    names = ("keys", "values")

    def __init__(self, shape: PotShape, *, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__(shape, [(dtype, shape.kv_size[2:])] * shape.num_tensors, device)
        self.keys, self.values, *third = (list(buffers) for buffers in zip(*self.layers, strict=True))
        self.rotated = third[0] if shape.key_rotation == "stored" else []
        self.halves = third[0] if shape.key_rotation == "half-cache" else []

    def write_(self, layer: int, at: At, keys: Tensor, rotated: Tensor, values: Tensor) -> None:
        """Write tokens (batch, kv_heads, n, dim), keys before and after RoPE."""
        third = [rotated] if self.rotated else [rotate_half(keys, self._shape.rotary_dim)] if self.halves else []
        self.put_(layer, at, (keys, values, *third))

    def parts_of(self, layer: int, keys: Tensor, values: Tensor) -> list[Tensor]:
        """Keys before RoPE and values as `put_` takes them."""
        return [keys, values]

    def keys_at(self, layer: int, at: At) -> Tensor:
        """Keys before RoPE of some slots, (batch, kv_heads, n, dim); with a slice a view."""
        return self.keys[layer][:, :, at]

    def values_at(self, layer: int, at: At) -> Tensor:
        """Values, as `keys_at`."""
        return self.values[layer][:, :, at]


class CodedSlots(Slots):
    """Keys before RoPE and values, quantised, each with its scales. They are rounded once, as they come.

    Args:
        dtype: of the model.
        frame: of the keys, (layers, kv_heads, dim) each.
    """

    names = ("keys", "values", "key_scales", "value_scales")

    def __init__(self, shape: PotShape, frame: Frame, *, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__(shape, shape.code_kinds, device)
        self._key_bits, self._value_bits = shape.code_bits
        self.frame, self._dtype = Frame(*(part.to(device, copy=True) for part in frame)), dtype

    def write_(self, layer: int, at: At, keys: Tensor, rotated: Tensor, values: Tensor) -> None:
        """Write tokens (batch, kv_heads, n, dim), keys before RoPE."""
        self.put_(layer, at, self.parts_of(layer, keys, values))

    def parts_of(self, layer: int, keys: Tensor, values: Tensor) -> list[Tensor]:
        """Keys before RoPE and values as `put_` takes them."""
        pairs = encode(around(keys, self._frame(layer)), self._key_bits), encode(values, self._value_bits)
        return [part for both in zip(*pairs, strict=True) for part in both]

    def keys_at(self, layer: int, at: At) -> Tensor:
        """Keys before RoPE of some slots, (batch, kv_heads, n, dim) in the model's type; a copy."""
        return self.coded(layer, self.capacities[layer]).wide_keys(self._dtype, at)

    def values_at(self, layer: int, at: At) -> Tensor:
        """Values, as `keys_at`."""
        return self.coded(layer, self.capacities[layer]).wide_values(self._dtype, at)

    def coded(self, layer: int, num_slots: int) -> Coded:
        """Views of the first slots of a layer, as attention takes them."""
        parts = [part[:, :, :num_slots] for part in self.layers[layer]]
        return Coded(parts[0], parts[1], parts[2], parts[3], self._frame(layer))

    def restore_frame_(self, state: Mapping[str, Tensor]) -> None:
        """Take over the frame, by its parts, of a pot that was saved; raises DamagedPot where it is none."""
        frame = Frame(*(take(state, name, torch.float32, tuple(self.frame.mean.shape)) for name in Frame._fields))
        check_names(state, set(Frame._fields))
        for name, part in frame._asdict().items():
            check_finite(f"the {name} of keys", part)
        if not bool((frame.spread > 0).all()):
            raise DamagedPot("the spread of keys is not above 0")
        for own, saved in zip(self.frame, frame, strict=True):
            own.copy_(saved)

    def _frame(self, layer: int) -> Frame:
        return Frame(self.frame.mean[layer], self.frame.spread[layer])


def plain_frame(shape: PotShape) -> Frame:
    """The frame that leaves keys as they are."""
    return Frame(torch.zeros(shape.kv_size), torch.ones(shape.kv_size))


def within(layers: slice, group: slice) -> slice:
    """Those of some layers that belong to a group, counted from its first."""
    start, stop = (min(max(layer, group.start), group.stop) - group.start for layer in (layers.start, layers.stop))
    return slice(start, stop)
