"""One forward pass through all layers: each attends to its slots of the pot, or goes on from its own state."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ondevice.kernels.attention import (
    Scoring,
    attention,
    attention_mass,
    attention_peak,
    observed_attention,
)
from ondevice.kernels.coded_attention import causal_coded_attention, takes_many
from ondevice.kernels.projection import rounds_activations
from ondevice.kernels.rope import rotate, rotate_with_half_
from ondevice.model.families.parts import AttentionLayer, Layer, ModelParts, SharingLayer, has_slots
from ondevice.model.layer import (
    Heads,
    after_attention,
    after_mixing,
    feed_forward,
    finish,
    position_mask,
    project_heads,
    queries,
)
from ondevice.model.passes import PLAIN, Cache, Options, Pass, PassStopped
from ondevice.model.rotary import Angles, Rotary
from ondevice.model.stateful import Window, mix
from ondevice.pot.host.hidden_tier import DroppedStates
from ondevice.pot.memory_pot import MemoryPot


class Run:
    """One pass, and what it observes.

    Args:
        parts: of the model.
        ropes: of all layers; None: it turns nothing.
        pot: takes the tokens.
        angles: of the pass.
    """

    def __init__(
        self,
        parts: ModelParts,
        ropes: Sequence[Rotary | None],
        pot: Cache,
        angles: Angles,
        options: Options,
    ) -> None:
        self._parts, self._ropes, self._dtype = parts, ropes, parts.dtype
        self._pot, self._angles, self._options = pot, angles, options
        self._per_layer = pot.shape.pot_layers_per_layer if isinstance(pot, MemoryPot) else 1
        self._mass, self._given, self._queries = list[Tensor](), list[Tensor](), list[Tensor]()
        self._dropped: list[DroppedStates] = []
        self._number = 0  # of the next layer among those that have slots
        self._sources, self._windows = parts.sources, dict[int, Window]()
        self._stored: dict[int, tuple[int, list[tuple[Tensor, Tensor]]]] = {}

    def through(self, input_ids: Tensor) -> Tensor:
        """Ids (batch, n) -> states after the final norm (batch, n, hidden_size).

        Raises:
            PassStopped: it was stopped.
        """
        parts = self._parts
        hidden = parts.embed(input_ids)
        own = None if parts.own_embeddings is None else parts.own_embeddings(input_ids, hidden)
        normed = parts.all_layers[0].input_norm(hidden)
        for index, layer in enumerate(parts.all_layers):
            self.stop_if_asked()
            hidden, normed = self._layer(index, layer, hidden, normed, None if own is None else own[:, :, index])
        return normed

    def committed(self, hidden: Tensor, num_staying: int) -> Pass:
        """Count what stays in the pot, and the results of the pass."""
        options, given = self._options, self._given
        of_parts = [tokens for tokens in given for _ in range(self._per_layer)]
        self._pot.commit_(num_staying, options.origin, options.num_transient, of_parts or None)
        return Pass(hidden, self._mass, given or None, self._queries, self._dropped)

    def stop_if_asked(self) -> None:
        """Raise PassStopped if the pass is to stop."""
        if self._options.is_stopped is not None and self._options.is_stopped():
            raise PassStopped

    def _layer(
        self, index: int, layer: Layer, hidden: Tensor, normed: Tensor, own: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        norm = self._parts.norm_after(index)
        if isinstance(layer, SharingLayer) and layer.source in self._stored:
            return finish(layer, hidden, self._attend_stored(layer, normed), norm, own)
        if not has_slots(layer):
            assert isinstance(self._pot, MemoryPot)
            native, num_transient = self._pot.native, self._options.num_transient
            out = mix(layer, normed, native, index, num_transient, self._ropes[index], self._windows)
            return feed_forward(layer, *after_mixing(layer, hidden, out), norm, own)
        number = self._number
        self._number += 1
        heads = self._project(number, layer, normed)
        out, observed = self._attend_layer(index, number, heads)
        if heads.gate is not None:
            out = out * heads.gate.sigmoid()
        self._note(heads, observed)
        pruning = self._options.pruning
        survivors = None if pruning is None else pruning.survivors(number, heads.rotated_query, heads.rotated_keys)
        if survivors is not None:
            if self._options.keeps_dropped:
                self._drop(number, layer, hidden, out, survivors)
            hidden, out = hidden[:, survivors], out[:, :, survivors]
            self._angles.keep(survivors)
        return finish(layer, hidden, out, norm, own)

    def _project(self, number: int, layer: AttentionLayer, normed: Tensor) -> Heads:
        first = self._pot.next_position[number * self._per_layer]
        heads = project_heads(layer, normed, *self._angles.at(number, first))
        if layer.query_scale is None:
            return heads
        factors = layer.query_scale(first + self._angles.offsets)
        return heads._replace(rotated_query=heads.rotated_query * factors[:, None].to(normed.dtype))

    def _note(self, heads: Heads, observed: Sequence[Tensor]) -> None:
        """Keep what the pass was asked for of one layer."""
        options = self._options
        if options.keeps_queries:
            self._queries += heads.query.chunk(self._per_layer, dim=1)
        self._mass += self._staying(observed)
        if options.pruning is not None or options.offsets is not None:
            self._given.append(self._angles.offsets[: self._angles.offsets.shape[0] - options.num_transient])

    def _drop(self, number: int, layer: AttentionLayer, hidden: Tensor, out: Tensor, survivors: Tensor) -> None:
        """Keep the states of the tokens that pruning takes out of the pass."""
        gone = _all_but(survivors, hidden.shape[1])
        states = after_attention(layer, hidden[:, gone], out[:, :, gone])[0][0]
        self._dropped.append(DroppedStates(number, self._angles.offsets[gone], states))

    # -- attention to the pot --------------------------------------------------------------------

    def _attend_layer(self, index: int, number: int, heads: Heads) -> tuple[Tensor, list[Tensor]]:
        """Store the new tokens of one layer, and attend to what is there; as `_attend_parts`."""
        parts = heads.split(self._per_layer)
        stored = [
            self._pot.append_(layer, part.keys, part.rotated_keys, part.values)
            for layer, part in enumerate(parts, number * self._per_layer)
        ]
        if index in self._sources:
            self._stored[index] = number, stored
        return self._attend_parts(number, [part.rotated_query for part in parts], stored)

    def _attend_stored(self, layer: SharingLayer, normed: Tensor) -> Tensor:
        """Attention of a layer without slots to those of an earlier one, whose observed attention grows by its own."""
        number, stored = self._stored[layer.source]
        first = self._pot.next_position[number * self._per_layer]
        query = rotate(queries(layer, normed), *self._angles.at(number, first))
        out, observed = self._attend_parts(number, query.chunk(self._per_layer, dim=1), stored)
        for at, mass in enumerate(self._staying(observed), number * self._per_layer):
            known = self._mass[at]
            self._mass[at] = torch.maximum(known, mass) if self._options.observes_peak else known + mass
        return out

    def _attend_parts(
        self, number: int, query: Sequence[Tensor], stored: Sequence[tuple[Tensor, Tensor]]
    ) -> tuple[Tensor, list[Tensor]]:
        """Attention to one layer's slots: (batch, heads, n, dim), and for each of its layers in the pot what
        `_attend` observed."""
        outs, mass = list[Tensor](), list[Tensor]()
        for layer, (part, (keys, values)) in enumerate(zip(query, stored, strict=True), number * self._per_layer):
            out, observed = self._attend(number, layer, part, keys, values)
            outs.append(out)
            if observed is not None:
                mass.append(observed)
        return outs[0] if len(outs) == 1 else torch.cat(outs, dim=1), mass

    def _staying(self, observed: Sequence[Tensor]) -> list[Tensor]:
        """Observed attention to the slots of tokens that stay."""
        return [one[..., : one.shape[-1] - self._options.num_transient] for one in observed]

    def _attend(
        self, number: int, layer: int, query: Tensor, keys: Tensor, values: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """Attention of the new tokens to one layer of the pot, and the attention mass, or peak, of those observed."""
        own, num_observed, pot = self._parts.layers[number], self._options.num_observed, self._pot
        mask, sinks = self._mask(own, layer), own.sinks_of(layer, self._per_layer)
        is_plain = num_observed == 0 and mask is None and own.softcap is None and sinks is None
        attend = self._options.attention if is_plain and query.shape[2] == 1 else None
        if isinstance(pot, MemoryPot) and not pot.rotated:
            coded = self._attend_coded(number, layer, query, keys.shape[2], pot) if is_plain and pot.is_coded else None
            if coded is not None:
                return coded, None
            keys, values = self._wide(number, layer, keys, values, pot)
        if attend is not None:
            return attend.attend(layer, query, keys, values, own.scale), None
        options: Scoring = {"mask": mask, "scale": own.scale, "softcap": own.softcap, "sinks": sinks}
        if query.shape[2] == num_observed == 1 and not self._options.observes_peak:
            return observed_attention(query, keys, values, **options)
        out = attention(query, keys, values, **options, in_bfloat16=self._may_round())
        if num_observed == 0:
            return out, None
        # Without a mask the observed queries are causal, as the last slots that they are.
        options["mask"] = None if mask is None else mask[:, :, -num_observed:]
        observed = attention_peak if self._options.observes_peak else attention_mass
        return out, observed(query[:, :, -num_observed:], keys, **options)

    def _attend_coded(self, number: int, layer: int, query: Tensor, num_slots: int, pot: MemoryPot) -> Tensor | None:
        """Attention by a kernel that makes codes wide and turns keys as it reads them; None: there is none."""
        scale, table = self._parts.layers[number].scale, self._angles.table(number, pot.next_position[layer])
        if query.shape[2] > 1 and not takes_many(query, table[0].shape[-1]):
            return None
        coded, positions = pot.coded(layer, num_slots), self._positions(layer, pot)
        if query.shape[2] > 1:
            return causal_coded_attention(query, coded, positions, *table, scale=scale, in_bfloat16=self._may_round())
        own = self._options.attention or PLAIN
        return own.attend_coded(layer, query, coded, positions, table, scale)

    def _may_round(self) -> bool:
        """True if attention of many queries may round what it multiplies, as products with the weights do."""
        return any(rounds_activations(linear.weight) for linear in self._parts.layers[0].linears.values())

    def _wide(self, number: int, layer: int, keys: Tensor, values: Tensor, pot: MemoryPot) -> tuple[Tensor, Tensor]:
        """Keys after RoPE, of a pot that does not store them, and values, both in the model's type."""
        if pot.is_coded:
            coded = pot.coded(layer, keys.shape[2])
            keys, values = coded.wide_keys(self._dtype), coded.wide_values(self._dtype)
        cos, sin = self._angles.of_slots(number, self._positions(layer, pot), pot.next_position[layer])
        if pot.workspace is None:
            return rotate(keys, cos, sin), values
        used = keys.shape[2]
        halves = pot.halves[layer][:, :, :used]
        return rotate_with_half_(pot.workspace[:, :, :used], keys, halves, cos, sin), values

    def _positions(self, layer: int, pot: MemoryPot) -> Tensor:
        return pot.positions_with(layer, (pot.next_position[layer] + self._angles.offsets).to(torch.int32))

    def _mask(self, own: AttentionLayer, layer: int) -> Tensor | None:
        """Additive mask where plain causal attention over the last slots would not do; else None.

        It is needed once positions go beyond a sliding window, of which only the last `window` logical positions are
        visible. Heads differ in what they hold: (batch or 1, kv_heads or 1, num_tokens, num_slots).
        """
        pot, angles = self._pot, self._angles
        window, first = own.sliding_window, pot.next_position[layer]
        if window is None or first + angles.span <= window:
            return None
        assert isinstance(pot, MemoryPot)
        new = (first + angles.offsets).to(torch.int32)
        return position_mask(new, pot.positions_with(layer, new), window, self._dtype)


def _all_but(index: Tensor, size: int) -> Tensor:
    """The numbers below `size` that are not in `index` (n,) int64, rising."""
    is_other = torch.ones(size, dtype=torch.bool, device=index.device)
    is_other[index] = False
    return is_other.nonzero().squeeze(1)
