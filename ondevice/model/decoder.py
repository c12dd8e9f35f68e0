"""Our own loop over the layers of a loaded model, reading from and writing to a memory pot.

Every pass appends keys and values to the pot in place. With nothing switched on its logits equal those of
transformers' own forward pass to float tolerance: that is the first test of the project.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeGuard, Unpack

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ondevice.config import KeyRotation, KvDtype
from ondevice.errors import PotError
from ondevice.kernels.backend import uses_triton
from ondevice.kernels.coded_attention import ends_early
from ondevice.kernels.codes import Frame
from ondevice.kernels.projection import runs_calls
from ondevice.kernels.rope import rotate, rows_of
from ondevice.machine.memory import free_memory_bytes, usable_bytes
from ondevice.model.families import model_parts
from ondevice.model.families.parts import AttentionLayer, ModelParts
from ondevice.model.head import Head
from ondevice.model.passes import Cache, OptionFields, Options, Pass
from ondevice.model.plain_layers import plain_layers
from ondevice.model.rotary import Angles, Rotary
from ondevice.model.run import Run
from ondevice.model.token_graph import TokenGraph, suits
from ondevice.pot.memory_pot import MemoryPot
from ondevice.pot.shape import PROMPT, PotShape, StatePart

if TYPE_CHECKING:
    from ondevice.model.one_token import OneToken


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
        self.dtype = self.parts.dtype
        self._ropes, self._pot_ropes = self._new_ropes()
        self._rotary = self._pot_ropes[0]
        self._one_token = self._fast_step() if has_fast_step else None
        self._token_graph = self._graph() if has_fast_step else None
        self.head = Head(self.parts.lm_head, self.parts.logit_softcap, self.parts.logit_scale)
        if self.device.type == "cuda":
            torch.cuda.empty_cache()  # the separate weights that `model_parts` has laid side by side

    def first_layers(self, num_layers: int) -> Decoder:
        """The same model cut off after some layers, over the same weights: no weight is copied."""
        other = copy.copy(self)
        other.parts = replace(self.parts, all_layers=self.parts.all_layers[:num_layers])
        other._ropes, other._pot_ropes = self._ropes[:num_layers], self._pot_ropes[: len(other.parts.layers)]
        other._one_token = other._fast_step() if self._one_token is not None else None
        other._token_graph = other._graph() if self._token_graph is not None else None
        return other

    def _new_ropes(self) -> tuple[tuple[Rotary | None, ...], tuple[Rotary, ...]]:
        """The RoPE of each layer, where it has one, and of those that have slots; layers that turn alike share one."""
        turns = [layer.turn if isinstance(layer, AttentionLayer) else None for layer in self.parts.all_layers]
        ropes = {id(turn): Rotary(self.parts, turn) for turn in turns if turn is not None}
        return tuple(ropes.get(id(turn)) for turn in turns), tuple(ropes[id(layer.turn)] for layer in self.parts.layers)

    def _fast_step(self) -> OneToken | None:
        """The shorter way for one token, where this model has one."""
        layers = plain_layers(self.parts)
        if not layers or self._rotary.dim != self.parts.head_dim or not runs_calls(self.parts.norm.weight):
            return None
        # Imported here: Numba is loaded by those who compile.
        from ondevice.kernels.cpu.token_parts import suits
        from ondevice.model.one_token import OneToken

        return OneToken(self.parts, layers) if suits(self.parts.head_dim) else None

    @property
    def ends_early_in_codes(self) -> bool:
        """True if attention of one token to a quantised pot can end early; of a model without weights, if on a CPU."""
        device = "cpu" if self.device.type == "meta" else self.device
        query = torch.empty(0, self.parts.head_dim, dtype=self.dtype, device=device)
        return ends_early(query, self._rotary.dim)

    def _graph(self) -> TokenGraph | None:
        """One token in one launch, where there is a GPU that can and this model suits."""
        is_there = self.device.type == "cuda" and suits(self.parts, self._rotary)
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
        parts, num_layers, num_heads = self.parts, len(self.parts.layers), self.parts.num_kv_heads
        ropes = [self._pot_ropes.index(rope) for rope in self._pot_ropes]
        state = (
            StatePart(index, name, dtype, size)
            for index, layer in enumerate(parts.all_layers)
            for name, (dtype, size) in layer.state_sizes(capacity).items()
        )
        pot_layers_per_layer = 1 if capacities is None else len(capacities) // num_layers
        assert pot_layers_per_layer in (1, num_heads)
        return PotShape(
            num_layers * pot_layers_per_layer,
            num_heads // pot_layers_per_layer,
            parts.head_dim,
            capacity,
            batch,
            key_rotation if kv_dtype == "model" else "on-read",
            self._rotary.dim,
            capacities,
            pot_layers_per_layer,
            kv_dtype,
            tuple(ropes) if len(set(ropes)) > 1 else None,
            tuple(state),
        )

    def slot_bytes(self, key_rotation: KeyRotation = "stored", kv_dtype: KvDtype = "model") -> int:
        """Bytes of one slot in every layer of such a pot."""
        shape = self.pot_shape(1, key_rotation=key_rotation, kv_dtype=kv_dtype)
        return shape.nbytes(self.dtype) - shape.state_bytes(self.dtype)

    def allocate(self, shape: PotShape, frame: Frame | None = None) -> MemoryPot:
        """An empty pot.

        Args:
            frame: of the keys of each layer of the model, where they are quantised; see `prefill.key_frame`.

        Raises:
            PotError: it would not fit into the memory that is free.
        """
        needed, usable = shape.nbytes(self.dtype), usable_bytes(free_memory_bytes(self.device))
        if needed > usable:
            capacity = shape.capacity
            raise PotError(
                f"A pot of {capacity:,} slots takes {needed / 1e9:.1f} GB, and {usable / 1e9:.1f} GB are free for it",
                fix=f"{int(capacity * 0.9 * usable / needed):,} slots would fit: lower {{pot.capacity}}, or choose "
                "another {pot.policy} than full, which has a slot for every token that it reads.",
            )
        if frame is not None:  # where heads are layers of the pot, each has its own
            frame = Frame(*(part.view(shape.num_layers, shape.num_kv_heads, -1) for part in frame))
        return MemoryPot(shape, dtype=self.dtype, device=self.device, rotate_keys=self.rotate_keys, frame=frame)

    @torch.inference_mode()
    def forward(self, input_ids: Tensor, pot: Cache, **fields: Unpack[OptionFields]) -> Pass:
        """Run tokens through the model: attend to [pot ; tokens], store their keys and values in the pot.

        Args:
            input_ids: (batch, n) int64.
            pot: takes the tokens; needs n free slots.
            fields: of `Options`.

        Raises:
            PassStopped: it was to stop.
        """
        options = Options(**fields)
        num_staying = input_ids.shape[1] - options.num_transient if options.offsets is None else options.span
        try:
            angles = Angles(self._pot_ropes, pot.max_positions, num_staying + options.num_transient)
            if options.offsets is not None:
                tail = torch.arange(options.span, angles.span, device=options.offsets.device)
                angles.keep(torch.cat((options.offsets, tail)))
            run = Run(self.parts, self._ropes, pot, angles, options)
            is_one = input_ids.numel() == 1 and not options.num_observed and not options.keeps_queries
            if is_one and options.offsets is None and self._takes_one_token(pot):
                if self._token_graph is not None and _suits_graph(pot, options):
                    run.stop_if_asked()
                    return Pass(self._token_graph.run(input_ids, pot), [])
                if self._one_token is not None and runs_calls(self.parts.norm.weight):
                    run.stop_if_asked()
                    hidden = self._one_token.run(self.parts.embed(input_ids), pot, angles, options.attention)
                    return run.committed(hidden, num_staying)
            return run.committed(run.through(input_ids), num_staying)
        except BaseException:  # stopped, or no memory: the pot is as it was before this pass
            pot.discard_(input_ids.shape[1])
            raise

    def ids(self, ids: Sequence[int] | npt.NDArray[np.int32]) -> Tensor:
        """Token ids as the input of `forward`: (1, n) int64 on the model's device."""
        return torch.as_tensor(np.asarray(ids, np.int64), device=self.device)[None]

    def synchronize(self) -> None:
        """Wait for the device, so that a clock read afterwards is true."""
        if self.device.type == "cuda":
            torch.cuda.current_stream(self.device).synchronize()  # copies in other streams go on

    def rotate_keys(
        self, keys: Tensor, positions: Tensor, max_positions: int, end: int | None = None, rope: int = 0
    ) -> Tensor:
        """Apply RoPE to keys (batch, kv_heads, n, dim) at their own positions (batch, kv_heads, n).

        Args:
            max_positions: of the pot that they are in, or are compared with.
            end: above all positions; None: not known, and a GPU is waited for.
            rope: that of `layers[rope]`.
        """
        tables = self._pot_ropes[rope].table(int(positions.max()) + 1 if end is None else end, max_positions)
        cos, sin = (rows_of(table, positions) for table in tables)
        return rotate(keys, cos, sin)

    def seen_keys(self, pot: MemoryPot, layer: int) -> Tensor:
        """Keys of a layer of a pot after RoPE, (batch, kv_heads, num_cached, dim)."""
        slots = slice(0, pot.num_cached[layer])
        if pot.rotated:
            return pot.rotated[layer][:, :, slots]
        keys, positions = pot.slots.keys_at(layer, slots), pot.positions[layer, :, :, slots]
        return self.rotate_keys(keys, positions, pot.max_positions, rope=pot.shape.rope_of(layer))

    def reach(self, pot: MemoryPot) -> int:
        """Positions that the RoPE of this pot is meant for; they may run on beyond, at a loss."""
        return self._rotary.reach(pot.max_positions)

    def _takes_one_token(self, pot: Cache) -> TypeGuard[MemoryPot]:
        """True if one more token sees all that the pot holds, and attention takes keys as they are stored."""
        if not isinstance(pot, MemoryPot) or not (pot.rotated or pot.is_coded):
            return False
        positions = pot.next_position[:: pot.shape.pot_layers_per_layer]
        pairs = zip(self.parts.layers, positions, strict=True)
        return all(position < layer.num_plain for layer, position in pairs)


def _suits_graph(pot: MemoryPot, options: Options) -> bool:
    """True if a token of an answer goes into a slot that all heads share, and attends to all."""
    is_answer = isinstance(options.origin, int) and options.origin == PROMPT and not options.num_transient
    if pot.is_coded and not uses_triton(pot.positions):  # all slots would be made wide for each token
        return False
    return is_answer and options.attention is None and not isinstance(pot.victims, list)
