"""Checks of a saved pot's tensors before anything is done with them; each owner checks its own with these.

A file may hold any number. One that is wrong must not be allocated by, indexed with or answered from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from ondevice.config import PotConfig
from ondevice.errors import DamagedPot
from ondevice.pot.shape import FREE, PROMPT, PROVENANCE, Kind, PotShape

# Beyond all that a model computes, and small enough that products with it stay finite.
LARGEST = 1e12
_FREE_AS_ZERO = ("positions", "importance", "novelty")


@dataclass(frozen=True, slots=True)
class Extent:
    """Extent of a document and depths of its tokens: bounds of the numbers of its pot.

    Attributes:
        num_tokens: of the document.
        num_positions: logical positions lie below this.
        depths: (num_tokens,) int16, layers that were given each token; None: all of them were given all.
    """

    num_tokens: int
    num_positions: int
    depths: Tensor | None = None

    def check_tokens(self, name: str, tokens: Tensor, layer: int = 0) -> None:
        """Refuse what is no token of the document, or one that `layer` was never given; raises DamagedPot."""
        check_within(name, tokens, 0, self.num_tokens)
        if self.depths is not None and bool((self.depths[tokens.long()] <= layer).any()):
            raise DamagedPot(f"{name} holds a token that was never read so far")

    def check_dropped(self, name: str, tokens: Tensor, layers: Tensor) -> None:
        """Refuse tokens (n,) of the document that were not dropped in those layers (n,); raises DamagedPot."""
        if tokens.numel() and (self.depths is None or bool((self.depths[tokens.long()] != layers + 1).any())):
            raise DamagedPot(f"{name} are of tokens that got further, or not so far")


def highest_position(config: PotConfig, num_tokens: int, num_prefix: int, max_positions: int = 0) -> int:
    """Positions that reading a document uses, at most.

    Args:
        config: of the pot.
        num_tokens: of the document.
        num_prefix: tokens of the prompt in front of it.
        max_positions: where skipped tokens take positions, too, these are numbered again before they reach this.
    """
    most = num_prefix + num_tokens
    if not config.method.keeps_all:
        # A distillation numbers what it keeps again, and a stretch is no longer than the pot.
        most = min(most, max(max_positions, 2 * config.capacity))
    return most


def take(state: Mapping[str, Tensor], name: str, dtype: torch.dtype, shape: tuple[int | None, ...]) -> Tensor:
    """A tensor of a saved state.

    Args:
        shape: None for any size.

    Raises:
        DamagedPot: it is missing, or of another type or shape.
    """
    tensor = state.get(name)
    if tensor is None:
        raise DamagedPot(f"{name} is missing")
    fit = (wanted in (None, size) for size, wanted in zip(tensor.shape, shape, strict=True))
    if tensor.dtype != dtype or len(tensor.shape) != len(shape) or not all(fit):
        raise DamagedPot(f"{name} is {str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)!s:.60}")
    return tensor


def take_counts(state: Mapping[str, Tensor], name: str, size: int, highest: int) -> list[int]:
    """Counts (size,) int64 of a saved state, 0 to `highest`; raises as `take`."""
    counts = take(state, name, torch.int64, (size,))
    check_within(name, counts, 0, highest + 1)
    return counts.tolist()


def check_names(state: Mapping[str, Tensor], names: set[str]) -> None:
    """Refuse tensors of other names; raises DamagedPot."""
    if unknown := state.keys() - names:
        raise DamagedPot(f"it holds {min(unknown)!r:.40}, which is not known")


def check_within(name: str, numbers: Tensor, low: int, stop: int) -> None:
    """Refuse whole numbers outside [low, stop); raises DamagedPot."""
    if numbers.numel():
        least, most = (int(n) for n in numbers.aminmax())
        if least < low or most >= stop:
            raise DamagedPot(f"{name} holds {least if least < low else most}, which cannot be")


def check_finite(name: str, numbers: Tensor, largest: float = LARGEST) -> None:
    """Refuse what no model computes: NaN, infinity, and what would become infinite; raises DamagedPot."""
    if numbers.numel():
        least, most = (float(n) for n in numbers.aminmax())  # NaN, where there is one
        if not (least >= -largest and most <= largest):
            raise DamagedPot(f"{name} holds a number that no model computes")


def check_distinct(name: str, tokens: Tensor) -> None:
    """Refuse a token that is there twice, along the last dimension; raises DamagedPot."""
    ordered = tokens.sort(dim=-1).values
    if bool((ordered[..., 1:] == ordered[..., :-1]).any()):
        raise DamagedPot(f"{name} holds a token twice")


def check_pot(state: Mapping[str, Tensor], shape: PotShape, kinds: Mapping[str, Kind], extent: Extent) -> None:
    """Refuse a state that no pot of this shape can have, its document read; raises DamagedPot.

    Args:
        kinds: type and size in one slot of each buffer of a layer, by name.
    """
    depth, heads = shape.layers.stop, (shape.batch, shape.kv_size[1])
    each = {f"{kind}.{layer}" for kind in kinds for layer in range(depth)}
    check_names(state, {*PROVENANCE, "num_cached", "next_position", "num_ranked", *each})
    num_cached = take_counts(state, "num_cached", depth, shape.capacity)
    next_position = take_counts(state, "next_position", depth, extent.num_positions)
    num_ranked = take_counts(state, "num_ranked", depth, shape.capacity)
    per_slot = (depth, *heads, max(num_cached))
    positions, origin = (take(state, name, torch.int32, per_slot) for name in PROVENANCE[:2])
    importance, novelty = (take(state, name, torch.float32, per_slot) for name in PROVENANCE[2:])
    if bool(importance.isnan().any()):  # it is infinite where a slot is never evicted
        raise DamagedPot("importance holds a number that no model computes")
    check_finite("novelty", novelty)
    for layers, capacity in shape.groups():
        for layer in range(layers.start, layers.stop):
            used = num_cached[layer]
            if used > capacity or num_ranked[layer] > used:
                raise DamagedPot(f"layer {layer} has {capacity:,} slots, and {used:,} of them hold something")
            for kind, (dtype, size) in kinds.items():
                check_finite(f"{kind}.{layer}", take(state, f"{kind}.{layer}", dtype, (*heads, used, *size)))
            is_free = origin[layer, ..., used:] == FREE
            if not is_free.all() or any(state[name][layer, ..., used:].any() for name in _FREE_AS_ZERO):
                raise DamagedPot(f"layer {layer} holds something in a free slot")
            slots = positions[layer, ..., :used], origin[layer, ..., :used]
            _check_order(layer, *slots, next_position[layer], extent, layer // shape.pot_layers_per_layer)


def check_ring(origin: Tensor, num_held: list[int], extent: Extent, pot_layers_per_layer: int) -> None:
    """Refuse rings (layers, n) of a pot whose layers are so many parts of the model's, that hold anything but so
    many tokens of the document; raises DamagedPot."""
    if max(num_held) < origin.shape[1]:
        raise DamagedPot(f"the host tier has {origin.shape[1]:,} places for {max(num_held):,} tokens")
    for layer, held in enumerate(num_held):
        extent.check_tokens(f"the host tier of layer {layer}", origin[layer, :held], layer // pot_layers_per_layer)
        check_distinct(f"the host tier of layer {layer}", origin[layer, :held])
        check_within(f"the host tier of layer {layer}", origin[layer, held:], FREE, FREE + 1)


def _check_order(layer: int, positions: Tensor, origin: Tensor, stop: int, extent: Extent, model_layer: int) -> None:
    """Refuse slots (batch, kv_heads, n) whose positions do not give the order of the document."""
    ordered, index = positions.sort(dim=-1)
    tokens = origin.gather(-1, index)
    check_within(f"positions of layer {layer}", ordered, 0, stop)
    is_prompt = tokens == PROMPT
    extent.check_tokens(f"origin of layer {layer}", tokens[~is_prompt], model_layer)
    rises = is_prompt | (tokens > tokens.cummax(dim=-1).values.roll(1, -1))
    if not rises[..., 1:].all() or bool((ordered[..., 1:] == ordered[..., :-1]).any()):
        raise DamagedPot(f"layer {layer} holds its tokens in another order than the document")
