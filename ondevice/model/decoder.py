"""Our own loop over the layers of a loaded model, reading from and writing to a memory pot.

Every pass appends keys and values to the pot in place. With nothing switched on its logits equal those of
transformers' own forward pass to float tolerance: that is the first test of the project.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypedDict, TypeGuard

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ondevice.config import KeyRotation, KvDtype
from ondevice.errors import PotError
from ondevice.kernels.attention import additive_mask, attention, attention_mass, attention_peak, observed_attention
from ondevice.kernels.coded_attention import ends_early
from ondevice.kernels.codes import Frame
from ondevice.kernels.projection import rounds_activations
from ondevice.kernels.rope import rotate, rotate_with_half_, rows_of
from ondevice.kernels.rope_attention import rope_attention
from ondevice.machine.memory import free_memory_bytes, usable_bytes
from ondevice.model.families import ModelParts, model_parts
from ondevice.model.head import Head
from ondevice.model.layer import Heads, after_attention, finish, project_heads
from ondevice.model.one_token import DecodeAttention, OneToken, attend_coded, plain_layers
from ondevice.model.passes import Cache, Pass, PassStopped, Pruner
from ondevice.model.rotary import Angles, Rotary
from ondevice.model.token_graph import TokenGraph, suits
from ondevice.pot.host.hidden_tier import DroppedStates
from ondevice.pot.memory_pot import MemoryPot
from ondevice.pot.shape import PROMPT, PotShape


class AttentionOptions(TypedDict):
    """Keyword arguments of all functions of `kernels.attention`."""

    mask: Tensor | None
    scale: float
    softcap: float | None


class Decoder:
    """Forward passes of one model over memory pots.

    Args:
        model: a transformers causal language model of a supported family, in eval mode.
        has_fast_step: take the shorter way for one token where there is one; False compares caches alone.
    """

    def __init__(self, model: Any, *, has_fast_step: bool = True) -> None:
        self.parts: ModelParts = model_parts(model)
        self.device = self.parts.device
        if self.device.type == "cuda":
            # cuDNN lays out a plan for every new length, of which a pot has one with each pass and each token.
            torch.backends.cuda.enable_cudnn_sdp(False)
        self.dtype: torch.dtype = (
            model.model.norm.weight.dtype
        )  # quantised weights have integer types; the norms never do
        self._rotary = Rotary(self.parts, self.dtype, self.device)
        self._one_token = self._fast_step() if has_fast_step else None
        self._token_graph = self._graph() if has_fast_step else None
        self.head = Head(self.parts.lm_head, self.parts.logit_softcap)
        if self.device.type == "cuda":
            torch.cuda.empty_cache()  # the separate weights that `model_parts` has laid side by side

    def first_layers(self, num_layers: int) -> Decoder:
        """The same model cut off after some layers, over the same weights: no weight is copied."""
        other = copy.copy(self)
        other.parts = replace(
            self.parts, layers=self.parts.layers[:num_layers], devices=self.parts.devices[:num_layers]
        )
        other._one_token = other._fast_step() if self._one_token is not None else None
        other._token_graph = other._graph() if self._token_graph is not None else None
        return other

    def _fast_step(self) -> OneToken | None:
        """The shorter way for one token, where this model has one."""
        layers = None if self.parts.is_spread else plain_layers(self.parts, self.device, self.dtype)
        turns_wholly = self._rotary.dim == self.parts.head_dim
        return OneToken(self.parts, layers) if layers and turns_wholly else None

    @property
    def ends_early_in_codes(self) -> bool:
        """True if attention of one token to a quantised pot can end early."""
        query = torch.empty(0, self.parts.head_dim, dtype=self.dtype, device=self.device)
        return ends_early(query, self._rotary.dim)

    def _graph(self) -> TokenGraph | None:
        """One token in one launch, where there is a GPU that can and this model suits."""
        is_there = self.device.type == "cuda" and not self.parts.is_spread and suits(self.parts, self._rotary)
        return TokenGraph(self.parts, self._rotary) if is_there else None

    def new_pot(
        self,
        capacity: int,
        batch: int = 1,
        key_rotation: KeyRotation = "stored",
        capacities: tuple[int, ...] | None = None,
    ) -> MemoryPot:
        """Allocate an empty pot of `pot_shape`; raises as `allocate`."""
        return self.allocate(self.pot_shape(capacity, batch, key_rotation, capacities))

    def pot_shape(
        self,
        capacity: int,
        batch: int = 1,
        key_rotation: KeyRotation = "stored",
        capacities: tuple[int, ...] | None = None,
        kv_dtype: KvDtype = "model",
    ) -> PotShape:
        """The shape of a pot for this model.

        Args:
            capacities: the slots of each layer, or of each KV head, layer by layer, where they differ.
            kv_dtype: quantised, nothing is kept beside the keys, whatever `key_rotation` says.
        """
        num_layers, num_heads = len(self.parts.layers), self.parts.num_kv_heads
        pot_layers_per_layer = 1 if capacities is None else len(capacities) // num_layers
        assert pot_layers_per_layer in (1, num_heads)
        return PotShape(
            num_layers * pot_layers_per_layer,
            num_heads // pot_layers_per_layer,
            self.parts.head_dim,
            capacity,
            batch,
            key_rotation if kv_dtype == "model" else "on-read",
            self._rotary.dim,
            capacities,
            pot_layers_per_layer,
            kv_dtype,
        )

    def slot_bytes(self, key_rotation: KeyRotation = "stored", kv_dtype: KvDtype = "model") -> int:
        """Bytes of one slot in every layer of such a pot."""
        return self.pot_shape(1, key_rotation=key_rotation, kv_dtype=kv_dtype).nbytes(self.dtype)

    def allocate(self, shape: PotShape, frame: Frame | None = None) -> MemoryPot:
        """An empty pot.

        Args:
            frame: of the keys of each layer of the model, where they are quantised; see `prefill.key_frame`.

        Raises:
            PotError: it would not fit into the memory that is free.
        """
        needed, devices = shape.nbytes(self.dtype), Counter(self.parts.devices)
        usable = min(  # of all that is needed, where each device takes its layers' part
            usable_bytes(free_memory_bytes(device)) * len(self.parts.devices) // number
            for device, number in devices.items()
        )
        if needed > usable:
            capacity = shape.capacity
            raise PotError(
                f"A pot of {capacity:,} slots takes {needed / 1e9:.1f} GB, and {usable / 1e9:.1f} GB are free for it",
                fix=f"{int(capacity * 0.9 * usable / needed):,} slots would fit: lower {{pot.capacity}}, or choose "
                "another {pot.policy} than full, which has a slot for every token that it reads.",
            )
        if frame is not None:  # where heads are layers of the pot, each has its own
            frame = Frame(*(part.view(shape.num_layers, shape.num_kv_heads, -1) for part in frame))
        places = [device for device in self.parts.devices for _ in range(shape.pot_layers_per_layer)]
        return MemoryPot(shape, dtype=self.dtype, device=self.device, devices=places, frame=frame)

    @torch.inference_mode()
    def forward(
        self,
        input_ids: Tensor,
        pot: Cache,
        *,
        origin: Tensor | int = PROMPT,
        num_transient: int = 0,
        num_observed: int = 0,
        observes_peak: bool = False,
        offsets: Tensor | None = None,
        span: int = 0,
        pruning: Pruner | None = None,
        keeps_queries: bool = False,
        keeps_dropped: bool = False,
        attention: DecodeAttention | None = None,
        is_stopped: Callable[[], bool] | None = None,
    ) -> Pass:
        """Run tokens through the model: attend to [pot ; tokens], store their keys and values in the pot.

        Args:
            input_ids: (batch, n) int64.
            pot: takes the tokens; needs n free slots.
            origin: document tokens (n - num_transient,) int32 of what stays, or `PROMPT`; with `offsets` (span,).
            num_transient: last tokens that are computed but do not stay in the pot (the catalyst).
            num_observed: last queries whose attention is summed into `Pass.mass`.
            observes_peak: put the most attention that any of them pays there, instead of the sum.
            offsets: (n - num_transient,) int64, rising: the tokens that stay stand at these places of a stretch of
                `span` tokens, whose others are skipped; positions count those, too. None: nothing is skipped.
            pruning: lets fewer tokens go on after some layers (batch 1); None: all go through all layers.
            keeps_queries: fill `Pass.queries`.
            keeps_dropped: fill `Pass.dropped` with what `pruning` drops.
            attention: of one token that sees all slots; None: plain attention. It is not used where a mask is
                needed, keys are rotated as they are read, or attention is observed.
            is_stopped: polled before every layer.

        Raises:
            PassStopped: `is_stopped` returned True.
        """
        num_tokens = input_ids.shape[1]
        num_staying = num_tokens - num_transient if offsets is None else span

        def stop_if_asked() -> None:
            if is_stopped is not None and is_stopped():
                raise PassStopped

        try:
            is_plain = input_ids.numel() == 1 and not num_observed and not keeps_queries and offsets is None
            if self._token_graph is not None and is_plain and attention is None and self._takes_one_token(pot):
                is_answer = isinstance(origin, int) and origin == PROMPT and not num_transient
                if is_answer and pot.rotated and not isinstance(pot.victims, list):
                    stop_if_asked()
                    return Pass(self._token_graph.run(input_ids, pot), [])
            hidden = self.parts.embed(input_ids)
            angles = Angles(self._rotary, pot.max_positions, num_staying + num_transient)
            if offsets is not None:
                tail = torch.arange(span, span + num_transient, device=offsets.device)
                angles.keep(torch.cat((offsets, tail)))
            mass, given, queries, dropped = list[Tensor](), list[Tensor](), list[Tensor](), list[DroppedStates]()
            if self._one_token is not None and is_plain and self._takes_one_token(pot):
                hidden = self.parts.norm(self._one_token.run(hidden, pot, angles, stop_if_asked, attention))
                pot.commit_(num_staying, origin, num_transient)
                return Pass(hidden, mass)
            pot_layers_per_layer = pot.shape.pot_layers_per_layer if isinstance(pot, MemoryPot) else 1
            normed = self.parts.layers[0].input_norm(self._moved(hidden, self.parts.devices[0]))
            for index, layer in enumerate(self.parts.layers):
                stop_if_asked()
                place = self.parts.devices[index]
                hidden, normed = self._moved(hidden, place), self._moved(normed, place)
                cos, sin = (
                    self._moved(part, place) for part in angles.at(pot.next_position[index * pot_layers_per_layer])
                )
                heads = project_heads(self.parts, layer, normed, cos, sin)
                if keeps_queries:
                    queries += self._moved(heads.query, self.device).chunk(pot_layers_per_layer, dim=1)
                out, observed = self._attend_layer(
                    index * pot_layers_per_layer,
                    heads.split(pot_layers_per_layer),
                    pot,
                    num_observed,
                    angles,
                    attention,
                    observes_peak,
                )
                mass += [self._moved(one[..., : one.shape[-1] - num_transient], self.device) for one in observed]
                if pruning is not None or offsets is not None:
                    given.append(angles.offsets[: angles.offsets.shape[0] - num_transient])
                if pruning is not None:
                    survivors = pruning.survivors(index, heads.rotated_query, heads.rotated_keys)
                    if survivors is not None:
                        if keeps_dropped:
                            gone = _all_but(survivors, hidden.shape[1])
                            states = after_attention(layer, hidden[:, gone], out[:, :, gone])[0][0]
                            where = angles.offsets[self._moved(gone, self.device)]
                            dropped.append(DroppedStates(index, where, self._moved(states, self.device)))
                        hidden, out = hidden[:, survivors], out[:, :, survivors]
                        angles.keep(self._moved(survivors, self.device))
                hidden, normed = finish(layer, hidden, out, self.parts.norm_after(index))
            hidden = self._moved(normed, self.device)
            of_parts = [tokens for tokens in given for _ in range(pot_layers_per_layer)]
            pot.commit_(num_staying, origin, num_transient, of_parts or None)
            return Pass(hidden, mass, given or None, queries, dropped)
        except BaseException:  # stopped, or no memory: the pot is as it was before this pass
            pot.discard_(num_tokens)
            raise

    def ids(self, ids: Sequence[int] | npt.NDArray[np.int32]) -> Tensor:
        """Token ids as the input of `forward`: (1, n) int64 on the model's device."""
        return torch.as_tensor(np.asarray(ids, np.int64), device=self.device)[None]

    def synchronize(self) -> None:
        """Wait for the devices, so that a clock read afterwards is true."""
        if self.device.type == "cuda":
            for device in {self.device, *self.parts.devices}:
                torch.cuda.current_stream(device).synchronize()  # copies in other streams go on

    def _moved(self, tensor: Tensor, device: torch.device) -> Tensor:
        """The tensor on a device, of a model that is spread; of any other it is there already."""
        return tensor.to(device) if self.parts.is_spread else tensor

    def rotate_keys(self, keys: Tensor, positions: Tensor, max_positions: int, end: int | None = None) -> Tensor:
        """Apply RoPE to keys (batch, num_kv_heads, n, head_dim) at their own positions (batch, num_kv_heads, n).

        Args:
            max_positions: of the pot that they are in, or are compared with.
            end: above all positions; None: not known, and a GPU is waited for.
        """
        tables = self._rotary.table(int(positions.max()) + 1 if end is None else end, max_positions)
        cos, sin = (rows_of(self._moved(table, positions.device), positions) for table in tables)
        return rotate(keys, cos, sin)

    def seen_keys(self, pot: MemoryPot, layer: int) -> Tensor:
        """Keys of a layer of a pot after RoPE, (batch, num_kv_heads, num_cached, head_dim)."""
        slots = slice(0, pot.num_cached[layer])
        if pot.rotated:
            return pot.rotated[layer][:, :, slots]
        positions = pot.slots.to_layer_device(pot.positions[layer, :, :, slots], layer)
        return self.rotate_keys(pot.slots.keys_at(layer, slots), positions, pot.max_positions)

    def reach(self, pot: MemoryPot) -> int:
        """Positions that the RoPE of this pot is meant for; they may run on beyond, at a loss."""
        return self._rotary.reach(pot.max_positions)

    def _attend_layer(
        self,
        first: int,
        heads: list[Heads],
        pot: Cache,
        num_observed: int,
        angles: Angles,
        decode_attention: DecodeAttention | None,
        observes_peak: bool,
    ) -> tuple[Tensor, list[Tensor]]:
        """Store the new tokens in the layers of the pot from `first` on, each with its heads, and attend to what is
        there: (batch, num_heads, n, head_dim), and for each of them what `_attend` observed."""
        outs, mass = list[Tensor](), list[Tensor]()
        for layer, part in enumerate(heads, first):
            query, seen = part.rotated_query, pot.append_(layer, part.keys, part.rotated_keys, part.values)
            out, observed = self._attend(
                layer, query, *seen, pot, num_observed, angles, decode_attention, observes_peak
            )
            outs.append(out)
            if observed is not None:
                mass.append(observed)
        return outs[0] if len(outs) == 1 else torch.cat(outs, dim=1), mass

    def _attend(
        self,
        layer: int,
        query: Tensor,
        keys: Tensor,
        values: Tensor,
        pot: Cache,
        num_observed: int,
        angles: Angles,
        decode_attention: DecodeAttention | None,
        observes_peak: bool,
    ) -> tuple[Tensor, Tensor | None]:
        """Attention of the new tokens, and the attention mass, or peak, of the last `num_observed` of them."""
        num_tokens, softcap = query.shape[2], self.parts.attention_softcap
        mask, place = self._mask(pot, layer, angles), self.parts.devices[self._layer_of(pot, layer)]
        mask = None if mask is None else self._moved(mask, place)
        if isinstance(pot, MemoryPot) and not pot.rotated:
            first = pot.next_position[layer]
            positions = pot.positions_with(layer, (first + angles.offsets).to(torch.int32))
            is_plain = num_tokens == 1 and num_observed == 0 and mask is None and softcap is None
            if pot.is_coded:
                coded = pot.coded(layer, keys.shape[2])
                if is_plain:
                    attend = decode_attention.attend_coded if decode_attention is not None else attend_coded
                    return attend(layer, query, coded, positions, angles.table(first), self.parts.scale), None
                keys, values = coded.wide_keys(self.dtype), coded.wide_values(self.dtype)
            elif is_plain and not pot.halves:
                cos, sin = (self._moved(table, place) for table in angles.table(first))
                positions = self._moved(positions, place)
                return rope_attention(query, keys, values, positions, cos, sin, scale=self.parts.scale), None
            turns = (self._moved(part, place) for part in angles.of_slots(positions, first))
            keys = self._rotate_seen(layer, keys, pot, *turns)
        if decode_attention is not None and num_tokens == 1 and num_observed == 0 and mask is None and softcap is None:
            return decode_attention.attend(layer, query, keys, values, self.parts.scale), None
        options: AttentionOptions = {"mask": mask, "scale": self.parts.scale, "softcap": softcap}
        if num_tokens == num_observed == 1 and not observes_peak:
            return observed_attention(query, keys, values, **options)
        out = attention(query, keys, values, **options, in_bfloat16=self._rounds_activations())
        if num_observed == 0:
            return out, None
        # Without a mask the observed queries are causal, as the last slots that they are.
        options["mask"] = None if mask is None else mask[:, :, -num_observed:]
        observed = attention_peak if observes_peak else attention_mass
        return out, observed(query[:, :, -num_observed:], keys, **options)

    def _rounds_activations(self) -> bool:
        """True if products with the weights round what they multiply: then attention may do so, too."""
        return any(rounds_activations(linear.weight) for linear in self.parts.layers[0].linears.values())

    def _rotate_seen(self, layer: int, keys: Tensor, pot: MemoryPot, cos: Tensor, sin: Tensor) -> Tensor:
        """Keys after RoPE, of a pot that does not store them."""
        if pot.workspace is None:
            return rotate(keys, cos, sin)
        used = keys.shape[2]
        return rotate_with_half_(pot.workspace[:, :, :used], keys, pot.halves[layer][:, :, :used], cos, sin)

    def _takes_one_token(self, pot: Cache) -> TypeGuard[MemoryPot]:
        """True if one more token sees all that the pot holds, and attention takes keys as they are stored."""
        if not isinstance(pot, MemoryPot) or not (pot.rotated or pot.is_coded):
            return False
        windows = (layer.sliding_window for layer in self.parts.layers)
        positions = pot.next_position[:: pot.shape.pot_layers_per_layer]
        return all(window is None or position < window for window, position in zip(windows, positions, strict=True))

    def _layer_of(self, pot: Cache, layer: int) -> int:
        """The layer of the model that a layer of a pot belongs to."""
        return layer // (pot.shape.pot_layers_per_layer if isinstance(pot, MemoryPot) else 1)

    def _mask(self, pot: Cache, layer: int, angles: Angles) -> Tensor | None:
        """Additive mask where plain causal attention over the last slots would not do; else None.

        It is needed once positions go beyond a sliding window, of which only the last `window` logical positions are
        visible, and when several new tokens lie in slots of evicted ones. Heads differ in what they hold, so the
        shape is (batch or 1, num_kv_heads or 1, num_tokens, num_slots).
        """
        window, first = self.parts.layers[self._layer_of(pot, layer)].sliding_window, pot.next_position[layer]
        if window is not None and first + angles.span <= window:
            window = None
        if window is None and (angles.offsets.shape[0] == 1 or pot.victims is None):
            return None
        assert isinstance(pot, MemoryPot)
        new = (first + angles.offsets).to(torch.int32)
        slots = pot.positions_with(layer, new)
        distance = new[:, None] - slots[:, :, None]
        visible = distance >= 0
        return additive_mask(visible if window is None else visible & (distance < window), self.dtype)


def _all_but(index: Tensor, size: int) -> Tensor:
    """The numbers below `size` that are not in `index` (n,) int64, rising."""
    is_other = torch.ones(size, dtype=torch.bool, device=index.device)
    is_other[index] = False
    return is_other.nonzero().squeeze(1)
