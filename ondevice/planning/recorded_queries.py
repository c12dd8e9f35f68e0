"""Decode attention as it really is: the queries of a document's next tokens over the pot that has read what is before.

They are recorded once, and read again with any rule of run-time termination.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ondevice.config import ArtConfig, EngineConfig
from ondevice.decode.termination import RunTimeTermination
from ondevice.documents import Document
from ondevice.errors import ConfigError
from ondevice.kernels.attention import attention
from ondevice.kernels.termination import Termination
from ondevice.model.loading.progress import Progress
from ondevice.pot.memory_pot import MemoryPot
from ondevice.session.session import Session


def evenly(config: EngineConfig) -> EngineConfig:
    """The settings with heads that hold equally many tokens, where they leave that open: what is recorded here is
    measured for the heads of a layer together."""
    if config.pot.slot_shares != "auto":
        return config
    return replace(config, pot=replace(config.pot, slot_shares="even"))


@dataclass(frozen=True, slots=True)
class Step:
    """One token in one layer: its query (batch, heads, 1, dim) after RoPE, and how many slots it sees."""

    layer: int
    query: Tensor
    num_slots: int


@dataclass(frozen=True, slots=True)
class Reading:
    """Outcome of rules on some steps.

    Attributes:
        errors: (steps, heads) distance of the output from plain attention over its norm.
        shares: (steps, kv_heads) of all blocks, those that were read.
    """

    errors: Tensor
    shares: Tensor


class _Recorder(RunTimeTermination):
    """Plain attention, which takes note of every query."""

    def __init__(self, pot: MemoryPot) -> None:
        super().__init__(pot, ArtConfig(), None)
        self.steps: list[Step] = []

    def attend(self, layer: int, query: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
        self.steps.append(Step(layer, query.clone(), keys.shape[2]))
        return attention(query, keys, values, scale=scale)


def read_and_record(session: Session, document: Document, num_steps: int, report: Progress) -> list[Step]:
    """Read a document but for its last tokens, and `record` those.

    Raises:
        ConfigError: as `record`; or the document is not longer than that, or a stream.
    """
    for _ in session.open(document):
        pass
    total, (start, stop) = session.context.tokens.num_total, session.context.spans[-1]
    if total is None or stop - start <= num_steps:
        raise ConfigError(
            f"The text has {max(stop - start, 0):,} tokens to read, and the last {num_steps} are kept for later",
            where=document.name,
            fix="Name a longer file, or raise {pot.capacity}.",
        )
    session.context.spans[-1] = (start, stop - num_steps)
    for _ in session.resume():
        report("Reading", session.context.num_read / total)
    return record(session, session.context.tokens.ids(total - num_steps, total).tolist())


def record(session: Session, ids: Sequence[int]) -> list[Step]:
    """Feed tokens one by one into a pot that has read what is before them; they stay in it.

    Raises:
        ConfigError: they do not fit, or decode attention over this pot cannot end early in every layer.
    """
    parts = session.context.decoder.parts
    if not session.context.pot.rotated:
        raise ConfigError(
            "Only rotated keys that are stored can be read by blocks",
            fix="Use {pot.key_rotation} stored and {pot.kv_dtype} model.",
        )
    if not parts.has_plain_scores or any(layer.sliding_window is not None for layer in parts.layers):
        raise ConfigError(
            "This model has attention that does not end early: a softcap, sinks or a sliding window",
            fix="Measure with a model that has none of them.",
        )
    if session.context.pot.shape.pot_layers_per_layer > 1:
        raise ConfigError(
            "Heads of a layer hold different numbers of tokens here, and are measured together",
            fix="Give {pot.slot_shares} even.",
        )
    if session.context.pot.num_free < len(ids):
        raise ConfigError(
            f"The pot has {session.context.pot.num_free} free slots for {len(ids)} tokens", fix="Raise {pot.reserve}."
        )
    recorder = _Recorder(session.context.pot)
    decoder = session.context.decoder
    for token in ids:
        decoder.forward(decoder.ids([token]), session.context.pot, attention=recorder)
    return recorder.steps


def keys_values(pot: MemoryPot, step: Step) -> tuple[Tensor, Tensor]:
    """Keys after RoPE and values of a step, (batch, kv_heads, num_slots, dim) each."""
    return pot.rotated[step.layer][:, :, : step.num_slots], pot.values[step.layer][:, :, : step.num_slots]


def read_again(
    session: Session, steps: Sequence[Step], config: ArtConfig, rules: Sequence[Termination] | None
) -> Reading:
    """Attend with other rules, and compare with plain attention; batch 1."""
    pot, scale = session.context.pot, session.context.decoder.parts.scale
    reading = RunTimeTermination(pot, config, rules)
    errors, shares = [], []
    for step in steps:
        keys, values = keys_values(pot, step)
        expected = attention(step.query, keys, values, scale=scale)
        before = reading.blocks_read[step.layer].clone()
        out = reading.attend(step.layer, step.query, keys, values, scale)
        errors.append(((out - expected).norm(dim=-1) / expected.norm(dim=-1)).flatten())
        num_blocks = -(-step.num_slots // config.block_size)
        shares.append((reading.blocks_read[step.layer] - before) / num_blocks)
    return Reading(torch.stack(errors).cpu(), torch.stack(shares).cpu())
