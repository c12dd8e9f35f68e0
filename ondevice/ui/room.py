"""Whether a pot fits into the memory that is free, asked before anything is allocated."""

from __future__ import annotations

from collections.abc import Sequence

import psutil
import torch

from ondevice.config import EngineConfig
from ondevice.engine import Engine
from ondevice.errors import PotError
from ondevice.library import Entry
from ondevice.prefill.choose import most_read
from ondevice.ui import words
from ondevice.ui.settings import slot_bytes
from ondevice.ui.workspace import Workspace

_SHARE = 0.9  # of the free memory; the rest is for the forward passes


def pot_bytes(engine: Engine, config: EngineConfig, num_tokens: int) -> int:
    """Bytes of the pot for a document of `num_tokens` tokens, and of the small model's where the settings ask for one:
    that has as many slots, in its own layers. Only policy `full` depends on the document; the small model then has a
    slot for every token, and the pot for every one that is let through.

    Raises:
        ConfigError, ModelError: there cannot be such a small model.
    """
    pot, spec = config.pot, config.spec
    slots = small_slots = pot.capacity
    if pot.policy == "full":
        slots = pot.reserve + most_read(num_tokens, spec)
        small_slots = pot.reserve + num_tokens
    speculator = engine.speculator(spec)
    small = 0 if speculator is None else speculator.new_pot(1).nbytes
    return slots * slot_bytes(engine) + small_slots * small


def free_bytes(device: torch.device) -> int:
    """Memory that a new pot could use."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return int(psutil.virtual_memory().available)


def require_room(
    engine: Engine,
    config: EngineConfig,
    num_tokens: int,
    others: Sequence[Workspace],
    *,
    going: Workspace | None = None,
) -> None:
    """Refuse a pot, or a host tier, that would not fit, with what would.

    Args:
        others: all other open documents.
        going: the one whose pot goes first.

    Raises:
        PotError: it is too large.
    """
    fix = "Choose a smaller pot."
    if config.pot.policy == "full":
        fix = "Keeping everything needs memory for every token: choose another way under “What to keep”."
    tier_bytes = 0 if config.pot.policy == "full" else _tier_bytes(config)
    _require(engine.loaded.device, pot_bytes(engine, config, num_tokens), tier_bytes, others, going, fix)


def require_room_for(engine: Engine, entry: Entry, others: Sequence[Workspace]) -> None:
    """The same for a saved document."""
    tier_bytes = 0 if entry.config is None else _tier_bytes(entry.config)
    _require(engine.loaded.device, entry.pot_bytes, tier_bytes, others, None, "Close another document first.")


def _tier_bytes(config: EngineConfig) -> int:
    return 0 if config.tier.folder else config.tier.budget_bytes


def _require(
    device: torch.device,
    pot: int,
    tier: int,
    others: Sequence[Workspace],
    going: Workspace | None,
    fix: str,
) -> None:
    tiers = sum(other.untouched_tier_bytes for other in others)
    old_tier = going.tier_bytes - going.untouched_tier_bytes if going is not None else 0
    old_pot = going.pot_bytes if going is not None else 0
    if device.type == "cpu":
        # Memory is taken once it is written to: what others have been promised is not free, and what the old pot has
        # never used is free already.
        promised = tiers + sum(other.untouched_bytes for other in others)
        old_pot -= going.untouched_bytes if going is not None else 0
        what = "The pot and its host tier" if tier else "The pot"
        _require_bytes(what, pot + tier, free_bytes(device) + old_pot + old_tier - promised, fix)
        return
    _require_bytes("The pot", pot, free_bytes(device) + old_pot, fix)
    free = free_bytes(torch.device("cpu")) + old_tier - tiers
    _require_bytes("The host tier", tier, free, "Choose a smaller host tier.")


def _require_bytes(what: str, num_bytes: int, free: int, fix: str) -> None:
    if num_bytes > _SHARE * max(free, 0):
        raise PotError(f"{what} would take {words.size(num_bytes)}, and {words.size(max(free, 0))} are free", fix=fix)


def free_device_memory() -> None:
    """Give back to the device what a dropped pot has left in torch's hands."""
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
