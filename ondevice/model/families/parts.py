"""Parts of a causal language model as plain callables and numbers, layer by layer, each with its kind.

A layer's kind says what it keeps of the tokens before: slots of the pot, or a state of fixed size of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import TypeGuard

import torch
import torch.nn.functional as F
from torch import Tensor

from ondevice.kernels.int4 import Int4Weight
from ondevice.kernels.norm import RMSNorm
from ondevice.kernels.packed import PackedWeight
from ondevice.kernels.projection import project
from ondevice.model.mixture import Op, mixture

# The parts of a state by name: type (None: the model's) and size for each text.
Sizes = Mapping[str, tuple[torch.dtype | None, tuple[int, ...]]]
Mix = Callable[[Tensor, list[Tensor]], tuple[Tensor, list[Tensor]]]
# (hidden_states, position_ids) -> cosines and sines, each (batch, n, rotary_dim), as modules of transformers give them.
Turn = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


@dataclass(frozen=True, slots=True)
class Linear:
    """A plain linear projection, weight (out_features, in_features)."""

    weight: Tensor | PackedWeight | Int4Weight
    bias: Tensor | None

    def __call__(self, x: Tensor) -> Tensor:
        return project(x, self.weight, self.bias)


@dataclass(frozen=True, slots=True)
class Tail:
    """Last pieces of a layer of Gemma 4: each token's own embedding for this layer, gated, and a factor.

    `gate` takes hidden states and gives as many numbers as that embedding has, `up` takes the product of both. All
    three are None in models without such embeddings.
    """

    scale: Tensor
    activation: Op
    gate: Op | None = None
    up: Op | None = None
    norm: RMSNorm | None = None

    def __call__(self, hidden: Tensor, own: Tensor | None) -> Tensor:
        """Hidden states (batch, n, hidden_size) and own embeddings (batch, n, size) -> hidden states."""
        if own is not None and self.gate is not None and self.up is not None and self.norm is not None:
            hidden = hidden + self.norm(self.up(self.activation(self.gate(hidden)) * own))
        return hidden * self.scale


@dataclass(frozen=True, slots=True)
class Experts:
    """A mixture of feed-forward networks, of which each token takes a few.

    `router` gives a score for each expert; those of the `num_taken` best become weights by a softmax. `gate_up` and
    `down` have a projection each, and `activate` makes (n, intermediate_size) of what `gate_up` gives.
    """

    router: Op
    num_taken: int
    gate_up: Sequence[Op]
    down: Sequence[Op]
    activate: Op

    def __call__(self, hidden: Tensor) -> Tensor:
        """Hidden states (batch, n, hidden_size) -> as many."""
        tokens = hidden.flatten(0, -2)
        scores, taken = self.router(tokens).topk(self.num_taken, dim=-1)
        weights = scores.float().softmax(dim=-1).to(hidden.dtype)
        return mixture(tokens, taken, weights, self.gate_up, self.down, self.activate).view_as(hidden)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """The pieces of a decoder layer around what mixes its tokens. Optional ones are None where the family has none.

    `gate_up` gives (..., 2 * intermediate_size). What `experts` give is added to that network's output, or stands for
    it. Both halves of the layer are multiplied by `residual_scale` before they are added to what went into them.
    """

    input_norm: RMSNorm
    post_attention_norm: RMSNorm | None = None
    mlp_norm: RMSNorm
    gate_up: Op | None = None
    intermediate_size: int
    activation: Op = F.silu
    down: Op | None = None
    experts: Experts | None = None
    residual_scale: float = 1.0
    post_mlp_norm: RMSNorm | None = None
    tail: Tail | None = None

    def state_sizes(self, num_slots: int) -> Sizes:
        """The parts of the state that it keeps beside a pot of so many slots; none where its tokens lie in those."""
        return {}

    @property
    def linears(self) -> dict[str, Linear]:
        """The projections that are plain products, by name."""
        fields = {"qkv": "qkv", "out": "out", "gate, up": "gate_up", "down": "down"}
        named = {name: getattr(self, field, None) for name, field in fields.items()}
        return {name: op for name, op in named.items() if isinstance(op, Linear)}


@dataclass(frozen=True, slots=True)
class QueryScale:
    """Factors on queries that grow with the position, 1 at the first `period` of them (Llama 4, Ministral 3)."""

    beta: float
    period: int

    def __call__(self, positions: Tensor) -> Tensor:
        """Positions (...) -> float32 (...)."""
        return 1 + self.beta * torch.log1p(torch.floor(positions / self.period))


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionLayer(Layer):
    """A layer whose keys and values lie in the pot.

    `qkv` gives (..., (num_heads + 2 * num_kv_heads) * head_dim); where it `is_gated`, twice as many rows for each query
    head: its query, and what its output is multiplied by, after a sigmoid. It gives no values where `keys_are_values`.
    `head_gate` gives one such number a query head, (..., heads). `turn` is its RoPE. `sliding_window` limits
    attention to that many last positions. `softcap` caps its scores. `sinks` (heads,) are scores of nothing.
    """

    qkv: Op
    out: Op
    num_heads: int
    num_kv_heads: int
    head_dim: int
    scale: float
    turn: Turn
    q_norm: RMSNorm | None = None
    k_norm: RMSNorm | None = None
    v_norm: RMSNorm | None = None
    is_gated: bool = False
    keys_are_values: bool = False
    head_gate: Op | None = None
    query_scale: QueryScale | None = None
    sliding_window: int | None = None
    softcap: float | None = None
    sinks: Tensor | None = None

    def apart(self, query_keys: Tensor) -> tuple[Tensor, Tensor]:
        """The queries, and the keys, of heads (batch, heads + kv_heads, n, dim)."""
        query, keys = query_keys.split((self.num_heads, self.num_kv_heads), dim=1)
        return query, keys

    def sinks_of(self, pot_layer: int, per_layer: int) -> Tensor | None:
        """The sinks of the heads in a layer of the pot, of which each layer of the model has as many."""
        return None if self.sinks is None else self.sinks.chunk(per_layer)[pot_layer % per_layer]

    @property
    def num_plain(self) -> float:
        """The first positions, at which a query sees all positions before it, and nothing scales it."""
        window = inf if self.sliding_window is None else self.sliding_window
        return window if self.query_scale is None else min(window, self.query_scale.period)


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowLayer(AttentionLayer):
    """A layer of attention that keeps the last tokens of its window by itself: they slide."""

    def state_sizes(self, num_slots: int) -> Sizes:
        """Keys before RoPE and values of the last tokens, the newest at the end."""
        assert self.sliding_window is not None
        size = (self.num_kv_heads, min(self.sliding_window, num_slots), self.head_dim)
        return {"keys": (None, size), "values": (None, size)}


BY_KIND = {"sliding_attention": WindowLayer, "full_attention": AttentionLayer}  # as configurations call them


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingLayer(AttentionLayer):
    """A layer that attends to the keys and values of an earlier one, `source` among all; `qkv` gives queries alone."""

    source: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecurrentLayer(Layer):
    """A layer that folds each token into a state of fixed size.

    `mix` takes hidden states (batch, n, hidden_size) and the state before them, and gives as many hidden states and the
    state after them, whose parts `sizes` describes; zeros are the state before any token. Meanwhile it holds so many
    numbers for each token as its `width`; 0: fewer than attention does.
    """

    mix: Mix
    sizes: Sizes
    width: int = 0

    def state_sizes(self, num_slots: int) -> Sizes:
        return self.sizes


@dataclass(frozen=True, slots=True)
class ModelParts:
    """The pieces of a causal language model around its layers.

    `all_layers` are of any kind; `layers` are those that the pot has slots for, alike but for their RoPE and window:
    what follows them is of the first of those.
    `lm_head` is the weight (vocab_size, hidden_size), which bitsandbytes never quantises, and which is packed with the
    others. It takes hidden states times `logit_scale`; `logit_softcap` caps its logits. `max_positions` are those that
    the model was trained for. All is on `device`. `own_embeddings` gives each token an embedding for each layer, from
    ids (batch, n) and what `embed` makes of them: (batch, n, layers, size).
    """

    embed: Op
    all_layers: tuple[Layer, ...]
    norm: RMSNorm
    lm_head: Tensor | PackedWeight
    hidden_size: int
    vocab_size: int
    max_positions: int
    logit_softcap: float | None
    device: torch.device
    own_embeddings: Callable[[Tensor, Tensor], Tensor] | None = None
    logit_scale: float = 1.0
    layers: tuple[AttentionLayer, ...] = field(init=False)
    num_heads: int = field(init=False)
    num_kv_heads: int = field(init=False)
    head_dim: int = field(init=False)
    scale: float = field(init=False)
    attention_softcap: float | None = field(init=False)
    rotary: Turn = field(init=False)

    def __post_init__(self) -> None:
        layers = tuple(filter(has_slots, self.all_layers))
        own = {name: getattr(layers[0], name) for name in ("num_heads", "num_kv_heads", "head_dim", "scale")}
        own |= {"layers": layers, "attention_softcap": layers[0].softcap, "rotary": layers[0].turn}
        for name, value in own.items():
            object.__setattr__(self, name, value)

    @property
    def kv_size(self) -> tuple[int, int, int]:
        """Layers that have slots, KV heads of each, and numbers of a key."""
        return len(self.layers), self.num_kv_heads, self.head_dim

    @property
    def num_heads_of_pot(self) -> int:
        """(layer, KV head) pairs that have slots."""
        return len(self.layers) * self.num_kv_heads

    @property
    def dtype(self) -> torch.dtype:
        """Of activations, as the norms have it; quantised weights have integer types."""
        return self.norm.weight.dtype

    @property
    def sources(self) -> frozenset[int]:
        """The layers, among all, whose keys and values later ones attend to."""
        return frozenset(layer.source for layer in self.all_layers if isinstance(layer, SharingLayer))

    @property
    def has_state(self) -> bool:
        """True if there are layers that keep a state of their own, beside the pot."""
        return not all(map(has_slots, self.all_layers))

    @property
    def has_plain_scores(self) -> bool:
        """True if attention is a softmax of scores as they are, to slots alone, as kernels for one token have it."""
        return all(layer.softcap is None and layer.sinks is None for layer in self.layers)

    def norm_after(self, index: int) -> RMSNorm:
        """The norm of a layer's output: of the next layer's input, or the last one of all.

        Args:
            index: among `all_layers`.
        """
        is_last = index + 1 == len(self.all_layers)
        return self.norm if is_last else self.all_layers[index + 1].input_norm


def has_slots(layer: Layer) -> TypeGuard[AttentionLayer]:
    """True if the keys and values of a layer lie in the pot."""
    return isinstance(layer, AttentionLayer) and not isinstance(layer, WindowLayer | SharingLayer)
