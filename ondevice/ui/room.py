"""Whether a pot fits into the memory that is free, asked before anything is allocated."""

from __future__ import annotations

import psutil
import torch

from ondevice.config import EngineConfig
from ondevice.engine import Engine
from ondevice.errors import PotError
from ondevice.ui import words
from ondevice.ui.settings import slot_bytes

_SHARE = 0.9  # of the free memory; the rest is for the forward passes


def pot_bytes(engine: Engine, config: EngineConfig, num_tokens: int) -> int:
    """Bytes of the pot for a document of `num_tokens` tokens. Only policy `full` depends on the document."""
    pot = config.pot
    slots = num_tokens + pot.reserve if pot.policy == "full" else pot.capacity
    return slots * slot_bytes(engine)


def free_bytes(device: torch.device) -> int:
    """Memory that a new pot could use."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return int(psutil.virtual_memory().available)


def require_room(
    engine: Engine, config: EngineConfig, num_tokens: int, *, reusable_bytes: int = 0, promised_bytes: int = 0
) -> None:
    """Refuse a pot that would not fit, with what would.

    Args:
        reusable_bytes: taken now by a pot that goes first.
        promised_bytes: of the free memory, what other pots have been promised.

    Raises:
        PotError: it is too large.
    """
    needed = pot_bytes(engine, config, num_tokens)
    # On a GPU memory is taken when it is promised; elsewhere only once it is written to.
    promised = promised_bytes if engine.loaded.device.type == "cpu" else 0
    free = max(free_bytes(engine.loaded.device) + reusable_bytes - promised, 0)
    if needed <= _SHARE * free:
        return
    fix = "Choose a smaller pot."
    if config.pot.policy == "full":
        fix = "Keeping everything needs memory for every token: choose another way under “What to keep”."
    raise PotError(f"The pot would take {words.size(needed)}, and {words.size(free)} are free", fix=fix)


def free_device_memory() -> None:
    """Give back to the device what a dropped pot has left in torch's hands."""
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
