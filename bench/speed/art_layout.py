"""Value of the order of blocks for ART: by recency, by the pot's layout, by an index of document order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from ondevice.kernels.attention import attention
from ondevice.kernels.decode_attention import decode_attention
from ondevice.kernels.termination import Termination
from torch import Tensor

from ondevice.config import ArtConfig
from ondevice.planning.recorded_queries import Reading, Step, keys_values, read_again, relative_error
from ondevice.result import Row, row
from ondevice.session.session import Session


def layout_rows(
    session: Session, steps: Sequence[Step], art: ArtConfig, rules: Sequence[Termination], case: dict[str, object]
) -> list[Row]:
    """Blocks read and errors under every order."""
    readings = {
        "importance-first layout": read_again(session, steps, art, rules),
        "importance-first index map": _read_by_index(session, steps, art, rules),
        "recency-first": read_again(session, steps, replace(art, traversal="recency"), rules),
    }
    rows = []
    for name, reading in readings.items():
        rows.append(row(name, case, "blocks read", "share", [float(reading.shares.mean())]))
        rows += error_rows(name, reading, case)
    return rows


def _read_by_index(session: Session, steps: Sequence[Step], art: ArtConfig, rules: Sequence[Termination]) -> Reading:
    """As if slots lay in document order: an index map then says which blocks come first, by their importance."""
    pot, scale, size = session.context.pot, session.context.decoder.parts.scale, art.block_size
    errors, shares = [], []
    for step in steps:
        keys, values = keys_values(pot, step)
        at = pot.positions[step.layer, :, :, : step.num_slots].long().argsort(dim=-1)
        importance = pot.importance[step.layer, :, :, : step.num_slots].gather(-1, at)
        keys, values = (t.gather(2, at[..., None].expand_as(t)).contiguous() for t in (keys, values))
        order = _by_importance(importance, pot.num_ranked[step.layer], size)
        expected = attention(step.query, keys, values, scale=scale)
        out, blocks_read = decode_attention(
            step.query, keys, values, scale=scale, block_size=size, order=order, termination=rules[step.layer]
        )
        errors.append(relative_error(out, expected))
        shares.append(blocks_read[0] / order.shape[-1])
    return Reading(torch.stack(errors).cpu(), torch.stack(shares).cpu())


def _by_importance(importance: Tensor, num_ranked: int, block_size: int) -> Tensor:
    """(1, num_kv_heads, num_blocks) int32: the sinks, what came since the last distillation, then by importance."""
    num_slots = importance.shape[-1]
    num_blocks, num_ranked_blocks = -(-num_slots // block_size), max(num_ranked // block_size, 1)
    padded = torch.nn.functional.pad(importance.clamp(max=1e30), (0, num_blocks * block_size - num_slots))
    weight = padded.unflatten(-1, (num_blocks, block_size)).sum(dim=-1)
    weight[..., num_ranked_blocks:] = 1e33 + torch.arange(num_blocks - num_ranked_blocks) * 1e30
    weight[..., 0] = torch.inf
    return weight.argsort(dim=-1, descending=True).int()


def error_rows(name: str, reading: Reading, case: dict[str, object]) -> list[Row]:
    """Quantiles of the relative error over tokens, layers and heads."""
    errors = reading.errors.flatten().double().numpy()
    return [
        row(name, case | {"quantile": q}, "output error", "", [float(np.quantile(errors, q))]) for q in (0.5, 0.9, 0.99)
    ]
