"""Room for a pot in the memory that is free, asked before anything is allocated."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from ondevice import words
from ondevice.errors import PotError
from ondevice.machine.memory import free_memory_bytes, shares_memory, usable_bytes
from ondevice.serving.workspace import Workspace
from ondevice.session.plan import Plan

FreeMemory = Callable[[torch.device | None], int]  # as `free_memory_bytes`


def require_room(
    plan: Plan, num_tokens: int, others: Sequence[Workspace], free_memory: FreeMemory, going: Workspace | None = None
) -> None:
    """Refuse a pot, or a host tier, that would not fit, with what would.

    Args:
        num_tokens: of the document; only a pot that keeps all depends on it.
        others: all other open documents.
        going: the one whose pot goes first.
        free_memory: bytes that are free on a device; None: in the main memory.

    Raises:
        PotError: it is too large.
    """
    fix = "Choose a smaller pot."
    if plan.config.pot.method.keeps_all:
        fix = "Keeping everything needs memory for every token: change {pot.policy}."
    needed = plan.pot_bytes(num_tokens) + plan.speculator_bytes(num_tokens)
    require_room_for(plan.loaded.device, needed, plan.tier_bytes(num_tokens), others, going, fix, free_memory)


def require_room_for(
    device: torch.device,
    pot: int,
    tier: int,
    others: Sequence[Workspace],
    going: Workspace | None = None,
    fix: str = "Close another document first.",
    free_memory: FreeMemory = free_memory_bytes,
) -> None:
    """The same for a document whose pot and host tier take so many bytes."""
    tiers = sum(other.untouched_tier_bytes for other in others)
    old_tier = going.tier_bytes - going.untouched_tier_bytes if going is not None else 0
    old_pot = going.pot_bytes if going is not None else 0
    if shares_memory(device):
        promised = tiers
        if device.type == "cpu":
            # Memory is taken once it is written to: what others have been promised is not free, and what the old pot
            # has never used is free already.
            promised += sum(other.untouched_bytes for other in others)
            old_pot -= going.untouched_bytes if going is not None else 0
        what = "The pot and its host tier" if tier else "The pot"
        _require_bytes(what, pot + tier, free_memory(device) + old_pot + old_tier - promised, fix)
        return
    _require_bytes("The pot", pot, free_memory(device) + old_pot, fix)
    free = free_memory(None) + old_tier - tiers
    _require_bytes("The host tier", tier, free, "Choose a smaller host tier.")


def _require_bytes(what: str, num_bytes: int, free: int, fix: str) -> None:
    usable = usable_bytes(free)
    if num_bytes > usable:
        raise PotError(f"{what} would take {words.size(num_bytes)}, and {words.size(usable)} are free for it", fix=fix)


def free_device_memory() -> None:
    """Give back to the device what a dropped pot has left in torch's hands."""
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
