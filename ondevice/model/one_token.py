"""One token through the layers on a CPU in float32: the decoder's own arithmetic in as few operations as can be.

Decoding is bound by reading the weights; on a small model the calls around that cost as much again. Here every layer
works in buffers laid out once, the norms' factors are applied after the products, and little is allocated but what
the products and attention return.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from ondevice.kernels.attention import attention
from ondevice.kernels.coded_attention import coded_attention
from ondevice.kernels.codes import Coded
from ondevice.kernels.norm import RMSNorm
from ondevice.kernels.projection import project
from ondevice.model.families.parts import AttentionLayer, Linear, ModelParts
from ondevice.model.rotary import Angles
from ondevice.pot.memory_pot import MemoryPot
from ondevice.pot.next_slot import NextCodes, next_slots


class DecodeAttention(Protocol):
    """Attention of one token to all that a layer holds; `RunTimeTermination` is one."""

    def attend(self, layer: int, query: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor: ...

    def attend_coded(
        self, layer: int, query: Tensor, coded: Coded, positions: Tensor, table: tuple[Tensor, Tensor], scale: float
    ) -> Tensor: ...


def attend_coded(
    layer: int, query: Tensor, coded: Coded, positions: Tensor, table: tuple[Tensor, Tensor], scale: float
) -> Tensor:
    """Plain attention of one token to a quantised pot; arguments as for `coded_attention`."""
    return coded_attention(query, coded, positions, *table, scale=scale)[0]


class PlainLayer(NamedTuple):
    """A layer of plain projections and SiLU, with norms before its two halves only."""

    input_norm: RMSNorm
    q_norm: RMSNorm | None
    k_norm: RMSNorm | None
    mlp_norm: RMSNorm
    qkv: Linear
    out: Linear
    gate_up: Linear
    down: Linear


class OneToken:
    """The layers of one model for one token at a time, batch 1.

    Args:
        parts: of a model on the CPU in float32.
        layers: `plain_layers` of the same model.
    """

    def __init__(self, parts: ModelParts, layers: tuple[PlainLayer, ...]) -> None:
        num_heads, num_kv_heads, head_dim = parts.num_heads, parts.num_kv_heads, parts.head_dim
        num_rotated = num_heads + num_kv_heads
        self._layers = layers
        self._scale = parts.scale
        self._hidden = torch.empty(parts.hidden_size)
        self._normed = torch.empty(parts.hidden_size)
        # One buffer that is seen as what it holds: query and key heads to be rotated, keys and values to be stored.
        self._qkv = torch.empty((num_rotated + num_kv_heads) * head_dim)
        self._heads = self._qkv[: num_rotated * head_dim].view(num_rotated, head_dim)
        self._first_half, self._second_half = self._heads.chunk(2, dim=-1)
        self._rotated = torch.empty_like(self._heads)
        self._rotated_first, self._rotated_second = self._rotated.chunk(2, dim=-1)
        self._num_heads = num_heads
        self._query = self._rotated[:num_heads].view(1, num_heads, 1, head_dim)
        self._rotated_keys = self._rotated[num_heads:].view(1, num_kv_heads, 1, head_dim)
        self._keys_values = self._qkv[num_heads * head_dim :].view(2, 1, num_kv_heads, 1, head_dim)
        self._gate_up = torch.empty(layers[0].gate_up.weight.shape[0])
        self._gate, self._up = self._gate_up.chunk(2)
        self._activated = torch.empty_like(self._gate)

    def run(
        self,
        hidden: Tensor,
        pot: MemoryPot,
        angles: Angles,
        before_layer: Callable[[], None],
        decode_attention: DecodeAttention | None = None,
    ) -> Tensor:
        """Store the token's keys and values in the pot, in its next free slot or over its victim, and attend to all.

        Args:
            hidden: (1, 1, hidden_size), the token's embedding.
            pot: does not count the token yet; `commit_` does that afterwards.
            angles: of this one token.
            before_layer: called before each layer; may raise.
            decode_attention: of the token; None: plain attention.

        Returns:
            (1, 1, hidden_size) before the final norm, a new tensor.
        """
        state, heads = self._hidden.copy_(hidden.view(-1)), self._heads
        pot_layers_per_layer = pot.shape.pot_layers_per_layer
        # KV heads that the pot holds apart, each with the queries that attend to it.
        parts = list(
            zip(
                self._query.chunk(pot_layers_per_layer, dim=1),
                self._rotated_keys.chunk(pot_layers_per_layer, dim=1),
                self._keys_values.chunk(pot_layers_per_layer, dim=2),
                strict=True,
            )
        )
        slots = next_slots(pot)
        for index, layer in enumerate(self._layers):
            before_layer()
            self._normed_product(layer.input_norm, layer.qkv, self._qkv)
            if layer.q_norm is not None and layer.k_norm is not None:
                heads[: self._num_heads] = layer.q_norm(heads[: self._num_heads])
                heads[self._num_heads :] = layer.k_norm(heads[self._num_heads :])
            first = pot.next_position[index * pot_layers_per_layer]
            self._rotate(*angles.at(index, first))
            outs = []
            for number, (query, rotated_keys, keys_values) in zip(pot.shape.parts_of(index), parts, strict=True):
                slot, coded = None if slots is None else slots[number], None
                if isinstance(slot, NextCodes):
                    slot.write_(keys_values)
                    coded, positions = slot.seen, slot.positions
                elif slot is not None:
                    slot.write_(keys_values, rotated_keys)
                    seen_keys, seen_values = slot.seen_keys, slot.seen_values
                else:
                    keys, values = keys_values
                    seen_keys, seen_values = pot.append_(number, keys, rotated_keys, values)
                    if pot.is_coded:
                        coded = pot.coded(number, seen_keys.shape[2])
                        positions = pot.positions_with(number, (first + angles.offsets).to(torch.int32))
                if coded is not None:
                    attend = attend_coded if decode_attention is None else decode_attention.attend_coded
                    table = angles.table(index, first)
                    outs.append(attend(number, query, coded, positions, table, self._scale).view(-1))
                elif decode_attention is None:
                    outs.append(attention(query, seen_keys, seen_values, scale=self._scale).view(-1))
                else:
                    out = decode_attention.attend(number, query, seen_keys, seen_values, self._scale)
                    outs.append(out.view(-1))
            _add_product_(state, layer.out, outs[0] if len(outs) == 1 else torch.cat(outs))
            self._normed_product(layer.mlp_norm, layer.gate_up, self._gate_up)
            torch.ops.aten.silu.out(self._gate, out=self._activated)
            _add_product_(state, layer.down, self._activated.mul_(self._up))
        return state.view(hidden.shape).clone()

    def _rotate(self, cos: Tensor, sin: Tensor) -> None:
        """RoPE of the query and key heads, as in `kernels.rope.rotate`."""
        cos, sin = cos.view(-1), sin.view(-1)
        half = cos.shape[0] // 2
        torch.mul(self._heads, cos, out=self._rotated)
        self._rotated_first.addcmul_(self._second_half, sin[:half])
        self._rotated_second.addcmul_(self._first_half, sin[half:])

    def _normed_product(self, norm: RMSNorm, linear: Linear, out: Tensor) -> None:
        """out = linear(norm(hidden)); the root mean square is a factor on the product."""
        state = self._hidden
        factor = (float(torch.dot(state, state)) / state.numel() + norm.eps) ** -0.5
        product = project(torch.mul(state, norm.weight, out=self._normed), linear.weight)
        if linear.bias is None:
            torch.mul(product, factor, out=out)
        else:
            torch.add(linear.bias, product, alpha=factor, out=out)


def _add_product_(state: Tensor, linear: Linear, vector: Tensor) -> None:
    """state += linear(vector)."""
    state.add_(project(vector, linear.weight, linear.bias))


def plain_layers(parts: ModelParts, device: torch.device, dtype: torch.dtype) -> tuple[PlainLayer, ...] | None:
    """The layers of a model as `OneToken` takes them; None where they have something that it leaves out."""
    if device.type != "cpu" or dtype != torch.float32 or parts.has_state or parts.attention_softcap is not None:
        return None
    layers = [_plain_layer(layer) for layer in parts.layers]
    return None if None in layers else tuple(filter(None, layers))


def _plain_layer(layer: AttentionLayer) -> PlainLayer | None:
    is_gated = layer.is_gated or layer.head_gate is not None
    if layer.post_attention_norm or layer.post_mlp_norm or is_gated or layer.activation is not F.silu:
        return None
    linears = tuple(layer.linears.values())
    if len(linears) < 4:
        return None
    return PlainLayer(layer.input_norm, layer.q_norm, layer.k_norm, layer.mlp_norm, *linears)
