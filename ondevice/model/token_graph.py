"""One token through the layers on a GPU as CUDA graphs: a few launches instead of several hundred.

A graph holds some layers, so that the GPU begins with the first ones while the host launches the others. It has the
addresses of what it reads and writes, and repeats what it recorded. So the token, its slot, its position and how many
slots there are lie in memory of the device; the graphs themselves move them on by one, and the host writes them again
only where something else has happened in between.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from ondevice.kernels.coded_attention import used_coded_attention
from ondevice.kernels.decode_attention import used_attention
from ondevice.kernels.store_token import store_codes_, store_token_
from ondevice.model.families.parts import AttentionLayer, ModelParts
from ondevice.model.layer import finish, heads
from ondevice.model.rotary import Rotary
from ondevice.pot.memory_pot import MemoryPot
from ondevice.pot.shape import PROMPT, UNKNOWN

_LAYERS = 4  # of a graph: what the GPU does meanwhile is longer than a launch
_Places = list[tuple[int, int, int]]  # slot, position and number of used slots with the token, of each layer


@dataclass(slots=True)
class _Recorded:
    """Graphs over one pot, one after the other; they keep nothing of the pot alive.

    Attributes:
        ids: (1, 1) int64, the token.
        places: (layers, 3) int32, as `known`.
        known: what `places` holds.
        angles: cosines and sines (num_positions, dim); the graphs have their addresses.
        out: (1, 1, hidden_size) after the final norm.
    """

    ids: Tensor
    places: Tensor
    angles: tuple[Tensor, Tensor]
    known: _Places = field(default_factory=list)
    graphs: list[torch.cuda.CUDAGraph] = field(default_factory=list)
    out: Tensor | None = None


class TokenGraph:
    """The layers of one model for one token at a time, batch 1.

    Args:
        parts: of a model that `suits`.
        rotary: its angles.
        records: False runs the same step without a graph: on any device, and to compare.
    """

    def __init__(self, parts: ModelParts, rotary: Rotary, *, records: bool = True) -> None:
        self._parts, self._rotary, self._records = parts, rotary, records
        self._recorded: WeakKeyDictionary[MemoryPot, _Recorded] = WeakKeyDictionary()

    def run(self, input_ids: Tensor, pot: MemoryPot) -> Tensor:
        """Put a token that is none of the document's into the pot, in its next free slot or over its victim, and attend
        to all.

        Args:
            input_ids: (1, 1) int64.
            pot: with keys after RoPE, and victims, if any, that all heads share.

        Returns:
            (1, 1, hidden_size) after the final norm, a new tensor.
        """
        places = _places(pot)
        held = self._held(pot, max(position for _, position, _ in places))
        held.ids.copy_(input_ids)
        if held.known != places:
            held.places.copy_(torch.tensor(places, dtype=torch.int32))
        if self._records and not held.graphs:
            self._record(held, pot)
            held.places.copy_(torch.tensor(places, dtype=torch.int32))
        for graph in held.graphs:
            graph.replay()
        if not self._records:
            *_, held.out = self._step(held, pot)
        held.known = [(slot + 1, position + 1, used + 1) for slot, position, used in places]
        pot.count_()
        assert held.out is not None
        return held.out.clone()

    def _held(self, pot: MemoryPot, last_position: int) -> _Recorded:
        """The graphs recorded for this pot, unless their angles do not reach so far."""
        held = self._recorded.get(pot)
        if held is None or held.angles[0].shape[0] <= last_position:
            device = pot.positions.device
            ids = torch.zeros(1, 1, dtype=torch.int64, device=device)
            places = torch.zeros(len(pot.num_cached), 3, dtype=torch.int32, device=device)
            size = max(last_position + 1, pot.shape.capacity)
            held = _Recorded(ids, places, self._rotary.table(size, pot.max_positions))
            self._recorded[pot] = held
        return held

    def _record(self, held: _Recorded, pot: MemoryPot) -> None:
        """Run the step once, for what is compiled or laid out with a first call, and record it."""
        stream, memory = torch.cuda.Stream(pot.positions.device), torch.cuda.graph_pool_handle()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in self._step(held, pot):
                pass
            _clear_workspaces()  # those of products lie in the memory of the graphs then, and live as long
            step, graphs = self._step(held, pot), list[torch.cuda.CUDAGraph]()
            for _ in range(0, len(self._parts.layers), _LAYERS):
                graphs.append(torch.cuda.CUDAGraph())
                # Other threads copy evicted tokens meanwhile, which is theirs to do.
                graphs[-1].capture_begin(memory, capture_error_mode="thread_local")
                try:
                    held.out = next(step)
                finally:
                    graphs[-1].capture_end()
            _clear_workspaces()
        torch.cuda.current_stream().wait_stream(stream)
        held.graphs = graphs

    def _step(self, held: _Recorded, pot: MemoryPot) -> Iterator[Tensor]:
        """States after every few layers; the last ones are those after the final norm."""
        parts, (cos, sin) = self._parts, held.angles
        slots, positions, _ = held.places.view(-1, 3, 1, 1, 1).expand(-1, -1, 1, pot.shape.kv_size[1], 1).unbind(1)
        slots = slots.long()
        pot.positions.scatter_(3, slots, positions)
        pot.origin.scatter_(3, slots, PROMPT)
        pot.novelty.scatter_(3, slots, UNKNOWN)
        hidden = parts.embed(held.ids)
        normed = parts.layers[0].input_norm(hidden)
        for index, layer in enumerate(parts.layers):
            outs = list[Tensor]()
            for number, (query_keys, values) in zip(
                pot.shape.parts_of(index),
                _split(layer, *heads(layer, normed)[:2], pot.shape.pot_layers_per_layer),
                strict=True,
            ):
                slot, position, num_used = held.places[number].split(1)
                if pot.is_coded:
                    coded = pot.coded(number, pot.capacities[number])
                    query = store_codes_(query_keys, values, cos, sin, slot, position, coded)
                    seen = pot.positions[number, :, :, : pot.capacities[number]]
                    outs.append(used_coded_attention(query, coded, seen, cos, sin, num_used, scale=parts.scale))
                else:
                    stored = pot.keys[number], pot.values[number], pot.rotated[number]
                    query = store_token_(query_keys, values, cos, sin, slot, position, stored)
                    outs.append(used_attention(query, stored[2], stored[1], num_used, scale=parts.scale))
            out = outs[0] if len(outs) == 1 else torch.cat(outs, dim=1)
            hidden, normed = finish(layer, hidden, out, parts.norm_after(index))
            is_last = index + 1 == len(parts.layers)
            if is_last:
                held.places.add_(1)
            if is_last or (index + 1) % _LAYERS == 0:
                yield normed


def _split(
    layer: AttentionLayer, query_keys: Tensor, values: Tensor, pot_layers_per_layer: int
) -> list[tuple[Tensor, Tensor]]:
    """Queries with keys, and values, of the KV heads of each part."""
    if pot_layers_per_layer == 1:
        return [(query_keys, values)]
    some = (part.chunk(pot_layers_per_layer, dim=1) for part in (*layer.apart(query_keys), values))
    return [(torch.cat((query, keys), dim=1), values) for query, keys, values in zip(*some, strict=True)]


def _clear_workspaces() -> None:
    """Let cuBLAS take new memory for its workspaces; it is kept for each stream, and streams are used again."""
    getattr(torch._C, "_cuda_clearCublasWorkspaces", lambda: None)()


def suits(parts: ModelParts, rotary: Rotary) -> bool:
    """True if a model has nothing that `TokenGraph` leaves out, or that a graph may not hold."""
    is_plain = not parts.has_state and all(
        len(layer.linears) == 4
        and layer.experts is None
        and not layer.is_gated
        and layer.head_gate is None
        and layer.turn is parts.rotary
        for layer in parts.layers
    )
    return is_plain and parts.has_plain_scores and rotary.dim == parts.kv_size[2]


def _places(pot: MemoryPot) -> _Places:
    victims = pot.victims
    assert victims is None or isinstance(victims, slice)
    if victims is None:
        return [(used, at, used + 1) for used, at in zip(pot.num_cached, pot.next_position, strict=True)]
    return [(victims.start, at, used) for used, at in zip(pot.num_cached, pot.next_position, strict=True)]
