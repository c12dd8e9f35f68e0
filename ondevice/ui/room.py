"""Whether a pot fits into the memory that is free, asked before anything is allocated."""

from __future__ import annotations

import psutil
import torch

from ondevice.config import EngineConfig
from ondevice.engine import Engine
from ondevice.errors import PotError
from ondevice.prefill.choose import most_chosen
from ondevice.ui import words
from ondevice.ui.settings import slot_bytes

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
        most = most_chosen(num_tokens, spec)
        slots = pot.reserve + most + min(spec.num_restored, num_tokens - most)
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
    engine: Engine, config: EngineConfig, num_tokens: int, *, reusable_bytes: int = 0, promised_bytes: int = 0
) -> None:
    """Refuse a pot that would not fit, with what would; else as `require_bytes`."""
    fix = "Choose a smaller pot."
    if config.pot.policy == "full":
        fix = "Keeping everything needs memory for every token: choose another way under “What to keep”."
    require_bytes(
        pot_bytes(engine, config, num_tokens),
        engine.loaded.device,
        reusable_bytes=reusable_bytes,
        promised_bytes=promised_bytes,
        fix=fix,
    )


def require_bytes(
    num_bytes: int,
    device: torch.device,
    *,
    reusable_bytes: int = 0,
    promised_bytes: int = 0,
    fix: str = "Close another document first.",
) -> None:
    """Refuse a pot of that many bytes where they are not free.

    Args:
        reusable_bytes: taken now by a pot that goes first.
        promised_bytes: of the free memory, what other pots have been promised.
        fix: what the user can do about it.

    Raises:
        PotError: it is too large.
    """
    # On a GPU memory is taken when it is promised; elsewhere only once it is written to.
    promised = promised_bytes if device.type == "cpu" else 0
    free = max(free_bytes(device) + reusable_bytes - promised, 0)
    if num_bytes > _SHARE * free:
        raise PotError(f"The pot would take {words.size(num_bytes)}, and {words.size(free)} are free", fix=fix)


def free_device_memory() -> None:
    """Give back to the device what a dropped pot has left in torch's hands."""
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
