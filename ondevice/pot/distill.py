"""Continual context distillation: from a full pot to its `num_kept` best slots per head, in place.

Section 3.2 and 3.5 of InfiniPot (arXiv 2410.01518). Survivors are laid out most important first after the sinks;
their order in the document lives on in their positions alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ondevice.config import PotConfig
from ondevice.pot.memory_pot import MemoryPot
from ondevice.pot.numbering import number_in_order_
from ondevice.pot.policies import LayerView, RetentionPolicy, layer_budgets
from ondevice.pot.shape import FREE, runs


@dataclass(frozen=True, slots=True)
class Distillation:
    """Result of one cycle; `novelty_tokens` are document tokens, int32, rising, kept for their novelty in some head."""

    num_before: int
    num_kept: int
    novelty_tokens: Tensor


@torch.inference_mode()
def distill(pot: MemoryPot, policy: RetentionPolicy, mass: list[Tensor], config: PotConfig) -> Distillation:
    """Keep the best slots of every head of every layer, reset their positions (CR-RoPE), free the others.

    Args:
        pot: changed in place.
        mass: for each layer (batch, kv_heads, num_cached): attention of the observed queries; may be empty.
    """
    num_before = max(pot.by_layer(pot.num_cached))
    budgets = layer_budgets(config, pot.num_protected, pot.shape)
    novel_tokens: list[Tensor] = []
    # Layers that hold equally many slots are scored together: few large operations instead of many small ones.
    for layers, length, num_kept in _alike(pot, budgets):
        used = (layers, slice(None), slice(None), slice(0, length))
        view = LayerView(
            mass=torch.stack(mass[layers]) if mass else None,
            novelty=pot.novelty[used],
            positions=pot.positions[used],
            num_kept=min(num_kept, length),
        )
        scores = policy.scores(view)
        is_protected = view.positions < pot.num_protected
        survivors = scores.masked_fill(is_protected, torch.inf).topk(view.num_kept, dim=-1).indices
        if config.needs_novelty and view.mass is not None:
            is_novel = (scores > view.mass.amax(dim=-1, keepdim=True)).gather(-1, survivors)
            kept = pot.origin[used].gather(-1, survivors)
            novel_tokens.append(torch.where(is_novel, kept, FREE).flatten())
        importance = view.mass if view.mass is not None and config.method.keeps_per_head else scores
        pot.importance[used] = importance.masked_fill(is_protected, torch.inf)
        order = pot.importance[used].gather(-1, survivors).argsort(dim=-1, descending=True, stable=True)
        pot.compact_(layers, survivors.gather(-1, order))
    if config.context_reset == "always":
        number_in_order_(pot)
    # Sorted where the pot is and counted on the host: a device is waited for once.
    novelty = torch.cat(novel_tokens).sort().values.cpu() if novel_tokens else torch.empty(0, dtype=torch.int32)
    return Distillation(num_before, max(pot.by_layer(pot.num_cached)), novelty[novelty >= 0].unique_consecutive())


def _alike(pot: MemoryPot, budgets: Sequence[int]) -> Iterator[tuple[slice, int, int]]:
    """Neighbouring layers that hold equally many slots and keep equally many: (layers, held, kept)."""
    for layers, length in pot.layers_by_length():
        for same in runs(layers, budgets.__getitem__):
            yield same, length, budgets[same.start]
