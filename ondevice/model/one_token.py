"""One token through the layers on a CPU, with packed weights: every kernel's call is laid out once.

Decoding is bound by reading the weights; on a small model Python's calls around that cost as much again. Here a token
is one call of all kernels, one after the other; where attention is somebody else's, one for each layer.
"""

from __future__ import annotations

import weakref

import torch
from torch import Tensor

from ondevice.kernels.cpu import decode_attention, packed_product, token_parts
from ondevice.kernels.cpu.calls import Call, Sequence
from ondevice.model.families.parts import ModelParts
from ondevice.model.passes import PLAIN, DecodeAttention
from ondevice.model.plain_layers import PlainLayer
from ondevice.model.rotary import Angles
from ondevice.pot.memory_pot import MemoryPot
from ondevice.pot.slots import CodedSlots, WideSlots


class _Buffers:
    """Memory for one token between the products of a layer.

    Attributes:
        state: (1, hidden_size), the residual stream; `normed` as it.
        qkv: (1, ...), query, key and value heads, of which `heads` (heads + kv_heads, dim) turn into
            `rotated`; `values` (kv_heads, dim).
        attended: (heads, dim).
        gate_up: (1, 2 * intermediate_size), and `activated` half of that.
    """

    def __init__(self, parts: ModelParts, intermediate_size: int) -> None:
        _, num_keys, dim = parts.kv_size
        num_rotated = parts.num_heads + num_keys
        self.state, self.normed = torch.empty(1, parts.hidden_size), torch.empty(1, parts.hidden_size)
        self.qkv = torch.empty(1, (num_rotated + num_keys) * dim)
        self.heads, self.values = self.qkv.view(-1, dim).split((num_rotated, num_keys))
        self.rotated = torch.empty_like(self.heads)
        self.attended = torch.empty(parts.num_heads, dim)
        self.gate_up, self.activated = torch.empty(1, 2 * intermediate_size), torch.empty(1, intermediate_size)


class _Heads:
    """Views of the heads that one layer of a pot holds: `query` and `attended` (1, n, 1, dim), and `keys`,
    `rotated` and `values` (kv_heads, dim)."""

    def __init__(self, buffers: _Buffers, part: int, num_parts: int, num_heads: int) -> None:
        query, rotated = buffers.rotated[:num_heads], buffers.rotated[num_heads:]
        chunks = (query, buffers.attended, buffers.heads[num_heads:], rotated, buffers.values)
        query, attended, self.keys, self.rotated, self.values = (each.chunk(num_parts)[part] for each in chunks)
        self.query, self.attended = query[None, :, None], attended[None, :, None]


class OneToken:
    """The layers of one model for one token at a time, batch 1.

    Args:
        parts: of a model on a CPU in float32, whose heads `token_parts` suits.
        layers: `plain_layers` of the same model.
    """

    def __init__(self, parts: ModelParts, layers: tuple[PlainLayer, ...]) -> None:
        self._parts, self._layers = parts, layers
        self._buffers = _Buffers(parts, layers[0].down.shape[1])
        self._num_threads = 0
        self._pot_calls: _PotCalls | None = None

    def run(
        self, hidden: Tensor, pot: MemoryPot, angles: Angles, decode_attention: DecodeAttention | None = None
    ) -> Tensor:
        """Store the token's keys and values in the pot, in its next free slot or over its victim, and attend to all.

        Args:
            hidden: (1, 1, hidden_size), the token's embedding.
            pot: does not count the token yet; `commit_` does that afterwards.
            angles: of this one token.
            decode_attention: of the token; None: plain attention.

        Returns:
            (1, 1, hidden_size) after the final norm, a new tensor.
        """
        num_threads = torch.get_num_threads()
        if num_threads != self._num_threads:
            self._lay_out(num_threads)
        self._buffers.state.copy_(hidden.view(1, -1))
        if decode_attention is None and _PotCalls.suits(pot):
            if self._pot_calls is None or self._pot_calls.pot() is not pot:
                self._pot_calls = _PotCalls(pot, self._before, self._after, self._buffers, self._parts, num_threads)
            self._pot_calls.run(pot, angles)
        else:
            self._layer_by_layer(pot, angles, decode_attention or PLAIN)
        return self._buffers.normed.view(hidden.shape).clone()

    def _lay_out(self, num_threads: int) -> None:
        """The calls of each layer before its attention, the last of which turns the heads, and after it; the final norm
        after the last one's."""
        at, num_heads = self._buffers, self._parts.num_heads
        self._before, self._after = list[list[Call]](), list[list[Call]]()

        for layer in self._layers:
            before = [token_parts.norm_call(at.state, layer.input_norm, at.normed)]
            before += packed_product.calls(at.normed, layer.qkv, layer.qkv_bias, at.qkv, num_threads)
            if layer.q_norm is not None and layer.k_norm is not None:
                query, keys = at.heads[:num_heads], at.heads[num_heads:]
                before.append(token_parts.norm_call(query, layer.q_norm, query))
                before.append(token_parts.norm_call(keys, layer.k_norm, keys))
            self._before.append([*before, token_parts.turn_call(at.heads, at.rotated)])
            after = packed_product.calls(at.attended.view(1, -1), layer.out, at.state, at.state, num_threads)
            after.append(token_parts.norm_call(at.state, layer.mlp_norm, at.normed))
            after += packed_product.calls(at.normed, layer.gate_up, None, at.gate_up, num_threads)
            after.append(token_parts.gate_call(at.gate_up, at.activated))
            after += packed_product.calls(at.activated, layer.down, at.state, at.state, num_threads)
            self._after.append(after)
        self._after[-1].append(token_parts.norm_call(at.state, self._parts.norm, at.normed))
        between = zip([[], *self._after], [*self._before, []], strict=True)
        self._pieces = [Sequence([*after, *before]) for after, before in between]
        self._num_threads, self._pot_calls = num_threads, None

    def _layer_by_layer(self, pot: MemoryPot, angles: Angles, own: DecodeAttention) -> None:
        """Attention that is not laid out: by `own`, or to a pot that has other codes, or heads with other victims."""
        per_layer, num_heads = pot.shape.pot_layers_per_layer, self._parts.num_heads
        heads = [_Heads(self._buffers, part, per_layer, num_heads) for part in range(per_layer)]
        scale, tables = self._parts.scale, _Tables(angles, pot)
        for index, before in enumerate(self._before):
            first = tables.turn(before[-1], index)
            self._pieces[index].run(self._num_threads)
            for number, head in zip(pot.shape.parts_of(index), heads, strict=True):
                new = (each[None, :, None] for each in (head.keys, head.rotated, head.values))
                keys, values = pot.append_(number, *new)
                if pot.is_coded:
                    positions = pot.positions_with(number, (first + angles.offsets).to(torch.int32))
                    coded, table = pot.coded(number, keys.shape[2]), angles.table(index, first)
                    out = own.attend_coded(number, head.query, coded, positions, table, scale)
                else:
                    out = own.attend(number, head.query, keys, values, scale)
                head.attended.copy_(out)
        self._pieces[-1].run(self._num_threads)


class _Tables:
    """Addresses of the angles of each layer in one pass: looked up once for layers that share them."""

    def __init__(self, angles: Angles, pot: MemoryPot) -> None:
        self._angles, self._pot = angles, pot
        self._known: tuple[int, int] | None = None
        self._addresses = 0, 0, 0

    def turn(self, call: Call, index: int) -> int:
        """Aim a `turn_call` at the token's row; its position."""
        first, cosines, sines, row_bytes = self.at(index)
        call.arguments["cosines"][0] = cosines + first * row_bytes
        call.arguments["sines"][0] = sines + first * row_bytes
        return first

    def at(self, index: int) -> tuple[int, int, int, int]:
        """Position of the token in a layer, the addresses of cosines and sines of position 0, and bytes of a row."""
        number = index * self._pot.shape.pot_layers_per_layer
        first = self._pot.next_position[number]
        key = self._pot.shape.rope_of(number), first
        if key != self._known:
            cos, sin = self._angles.table(index, first)
            self._known, self._addresses = key, (cos.data_ptr(), sin.data_ptr(), 4 * cos.shape[1])
        return first, *self._addresses


class _PotCalls:
    """All calls of a token in one pot; what changes from token to token is written into their arguments."""

    def __init__(
        self,
        pot: MemoryPot,
        before: list[list[Call]],
        after: list[list[Call]],
        buffers: _Buffers,
        parts: ModelParts,
        num_threads: int,
    ) -> None:
        self.pot, self._num_threads = weakref.ref(pot), num_threads
        self._turns = [calls[-1] for calls in before]
        self._stores, self._attends = list[_Aimed](), list[Call]()
        per_layer, calls = pot.shape.pot_layers_per_layer, list[Call]()
        heads = [_Heads(buffers, part, per_layer, parts.num_heads) for part in range(per_layer)]
        for index in range(len(before)):
            calls += before[index]
            for number, head in zip(pot.shape.parts_of(index), heads, strict=True):
                store, attend = _in_slot(pot, number, head, parts.scale, num_threads)
                self._stores.append(store)
                self._attends.append(attend)
                calls += (store.call, attend)
            calls += after[index]
        self._sequence = Sequence(calls)

    @staticmethod
    def suits(pot: MemoryPot) -> bool:
        """True if all heads take the same slot, and keys are stored after RoPE or in 8 bits."""
        if isinstance(pot.victims, list) or pot.shape.batch > 1:
            return False
        return bool(pot.rotated) or (pot.is_coded and pot.shape.code_bits == (8, 8) and pot.victims is None)

    def run(self, pot: MemoryPot, angles: Angles) -> None:
        """The token through all layers and the final norm: from `_Buffers.state` to `normed`."""
        tables, victims = _Tables(angles, pot), pot.victims
        for index, call in enumerate(self._turns):
            tables.turn(call, index)
        for layers, used in pot.layers_by_length():
            slot = victims.start if isinstance(victims, slice) else used
            end = used + (victims is None)
            assert end <= pot.capacities[layers.start]
            if pot.is_coded:  # attention looks up where the token stands before it is counted
                pot.positions[layers, :, :, slot] = pot.next_position[layers.start]
            for number in range(layers.start, layers.stop):
                self._stores[number].at(slot)
                arguments = self._attends[number].arguments
                arguments["num_slots"][0] = end
                if pot.is_coded:
                    _, cosines, sines, _ = tables.at(number // pot.shape.pot_layers_per_layer)
                    arguments["cosines"][0], arguments["sines"][0] = cosines, sines
        self._sequence.run(self._num_threads)


class _Aimed:
    """A call that writes a slot, and where slot 0 is in each of the buffers that it writes to."""

    def __init__(self, call: Call, buffers: dict[str, Tensor]) -> None:
        self.call = call
        self._places = [
            (call.arguments[name], buffer.data_ptr(), buffer.stride(2) * buffer.element_size())
            for name, buffer in buffers.items()
        ]

    def at(self, slot: int) -> None:
        for field, first, stride in self._places:
            field[0] = first + slot * stride


def _in_slot(pot: MemoryPot, number: int, head: _Heads, scale: float, num_threads: int) -> tuple[_Aimed, Call]:
    """The calls that store a token in one layer of a pot, and that attend to all of it."""
    slots, sizes = pot.slots, {"scale": scale, "num_threads": num_threads}
    if isinstance(slots, WideSlots):
        keys, values, rotated = slots.keys[number], slots.values[number], slots.rotated[number]
        store = token_parts.store_call(head.keys, head.rotated, head.values, 4 * keys.stride(1))
        aimed = _Aimed(store, {"to_keys": keys, "to_rotated": rotated, "to_values": values})
        return aimed, decode_attention.call(head.query, rotated, values, head.attended, **sizes)
    assert isinstance(slots, CodedSlots)
    coded = slots.coded(number, slots.capacities[number])
    strides = coded.keys.stride(1), 4 * coded.key_scales.stride(1)
    store = token_parts.store_codes_call(head.keys, head.values, *coded.frame, *strides)
    places = coded.keys, coded.values, coded.key_scales, coded.value_scales
    names = "to_keys", "to_values", "to_key_scales", "to_value_scales"
    aimed = _Aimed(store, dict(zip(names, places, strict=True)))
    attend = decode_attention.call(
        head.query, coded.keys, coded.values, head.attended, coded=coded, positions=pot.positions[number], **sizes
    )
    return aimed, attend
