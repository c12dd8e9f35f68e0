"""Run-time termination of decode attention (ART, arXiv 2606.00024) over the pot: in which order, and until when.

Distillation lays the slots of a layer out with the sinks and the most important first, so that importance-first reads
are contiguous; what came since lies after that. Both are read from their better end: the newest block first, then the
rest from the beginning.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TypedDict

import torch
from torch import Tensor

from ondevice.config import ArtConfig
from ondevice.events import BlocksRead
from ondevice.kernels.coded_attention import coded_attention
from ondevice.kernels.codes import Coded
from ondevice.kernels.decode_attention import decode_attention
from ondevice.kernels.termination import Termination
from ondevice.model.families.parts import ModelParts
from ondevice.pot.memory_pot import MemoryPot
from ondevice.pot.shape import PotShape

# Careful: heads that search for one token lose it early, and without a calibration it is not known which those are.
DEFAULT = Termination(tau=1e-3, phi=1e-3, patience=5, is_relative=True)


def rules_of(config: ArtConfig, calibrated: tuple[Termination, ...] | None, num_layers: int) -> tuple[Termination, ...]:
    """The rule of each layer: what the settings name, else what was calibrated for the model, else the default."""
    if config.published:
        return (Termination(),) * num_layers
    rules = calibrated or (DEFAULT,) * num_layers
    named = {"tau": config.tau, "phi": config.phi, "patience": config.patience}
    chosen = {name: value for name, value in named.items() if value is not None}
    return tuple(replace(rule, **chosen) for rule in rules)


def warm_up(parts: ModelParts) -> None:
    """Compile, or load, the kernel for one token of a model, so that no answer waits for it."""
    query = torch.zeros(1, parts.num_heads, 1, parts.head_dim, dtype=parts.dtype, device=parts.device)
    keys = query[:, : parts.num_kv_heads]
    decode_attention(query, keys, keys, scale=1.0, termination=DEFAULT)


class _How(TypedDict):
    """In which blocks attention reads, in which order, and until when."""

    block_size: int
    order: Tensor
    termination: Termination | None


class RunTimeTermination:
    """Decode attention over one pot, and the account of what it read.

    Args:
        config: where and how to read.
        rules: when to end, for each layer of the model; None: never.

    Attributes:
        blocks_read: for each layer and head of the pot, int64, summed over tokens and sequences.
        blocks_held: for each layer of the pot, int64, the blocks that there were for one head, likewise.
        num_steps: tokens that were accounted for.
    """

    def __init__(self, pot: MemoryPot, config: ArtConfig, rules: Sequence[Termination] | None) -> None:
        self.config, self._pot = config, pot
        self._rules = None if rules is None else [_of_part(rules, pot.shape, n) for n in range(pot.shape.num_layers)]
        # Where the pot is: a number that came to the host for every layer would hold the device up.
        self._device = pot.positions.device
        heads = (pot.shape.num_layers, pot.shape.num_kv_heads)
        self.blocks_read = torch.zeros(heads, dtype=torch.int64, device=self._device)
        self.blocks_held = torch.zeros(heads[0], dtype=torch.int64)
        self.num_steps = 0
        self._asked: set[int] = set()

    def attend(self, layer: int, query: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
        """Attention of one token; shapes as for `decode_attention`."""
        order = self.order(layer, keys.shape[2])
        out, blocks_read = decode_attention(query, keys, values, scale=scale, **self._how(layer, order))
        self._count(layer, blocks_read, order)
        return out

    def attend_coded(
        self, layer: int, query: Tensor, coded: Coded, positions: Tensor, table: tuple[Tensor, Tensor], scale: float
    ) -> Tensor:
        """The same over a quantised pot; shapes as for `coded_attention`."""
        order = self.order(layer, coded.keys.shape[2])
        out, blocks_read = coded_attention(query, coded, positions, *table, scale=scale, **self._how(layer, order))
        self._count(layer, blocks_read, order)
        return out

    def end_step(self) -> None:
        """One token is done; layers that were not asked for it have read all they hold."""
        self.num_steps += 1
        for layer, num_slots in enumerate(self._pot.num_cached):
            if layer not in self._asked:
                num_blocks = -(-num_slots // self.config.block_size) * self._pot.shape.batch
                self.blocks_read[layer] += num_blocks
                self.blocks_held[layer] += num_blocks
        self._asked.clear()

    def account(self) -> BlocksRead:
        """Blocks read so far."""
        read, shape = self.blocks_read.cpu(), self._pot.shape
        by_head = (shape.num_layers // shape.pot_layers_per_layer, -1)
        held = self.blocks_held[:, None].expand_as(read).reshape(by_head)
        return BlocksRead(self.num_steps, read.reshape(by_head).numpy().copy(), held.numpy().copy())

    def _how(self, layer: int, order: Tensor) -> _How:
        rule = None if self._rules is None else self._rules[layer]
        return {"block_size": self.config.block_size, "order": order, "termination": rule}

    def _count(self, layer: int, blocks_read: Tensor, order: Tensor) -> None:
        self.blocks_read[layer] += blocks_read.sum(dim=0)
        self.blocks_held[layer] += order.shape[-1] * blocks_read.shape[0]
        self._asked.add(layer)

    def order(self, layer: int, num_slots: int) -> Tensor:
        """The blocks of one layer in the order in which they are read, (1, 1, num_blocks) int32."""
        size = self.config.block_size
        return _order(-(-num_slots // size), self._pot.num_ranked[layer] // size, self._device)


def _of_part(rules: Sequence[Termination], shape: PotShape, layer: int) -> Termination:
    """The rule of one layer of a pot, from those of the model's layers."""
    rule = rules[layer // shape.pot_layers_per_layer]
    if isinstance(rule.tau, float) or shape.pot_layers_per_layer == 1:
        return rule
    first = layer % shape.pot_layers_per_layer * shape.num_kv_heads
    return replace(rule, tau=rule.tau[first : first + shape.num_kv_heads])


@lru_cache(maxsize=256)
def _order(num_blocks: int, num_ranked: int, device: torch.device) -> Tensor:
    """The sinks, then the blocks from the last one back to those ranked by importance, then these."""
    num_ranked = max(num_ranked, 1)
    newest = range(num_blocks - 1, num_ranked - 1, -1)
    return torch.tensor([0, *newest, *range(1, num_ranked)], dtype=torch.int32, device=device)[None, None]
