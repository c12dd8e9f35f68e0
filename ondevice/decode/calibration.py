"""Thresholds of run-time termination that were measured for a model, kept beside its converted weights."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ondevice.config import ArtConfig, PotConfig
from ondevice.errors import ModelError
from ondevice.files import READABLE, replacing
from ondevice.kernels.termination import Termination
from ondevice.model.loading.cache_folder import cache_dir


def calibrated(fingerprint: str, art: ArtConfig, pot: PotConfig) -> tuple[Termination, ...] | None:
    """The rules of all layers that were stored for the model with this fingerprint and this way of reading.

    None where there are none that can be read.
    """
    try:
        data = json.loads(_path(fingerprint, pot).read_text(encoding="utf-8"))
        if data["reading"] != _reading(art):
            return None
        return tuple(Termination(**{**rule, "tau": tuple(rule["tau"])}) for rule in data["rules"])
    except (OSError, ValueError, TypeError, KeyError):
        return None


def store(fingerprint: str, art: ArtConfig, pot: PotConfig, rules: tuple[Termination, ...]) -> Path:
    """Keep the rules of all layers for a model and pots that are distilled, or are not; returns the file.

    Raises:
        ModelError: it cannot be written.
    """
    path = _path(fingerprint, pot)
    try:
        data = {"reading": _reading(art), "rules": [asdict(rule) for rule in rules]}
        with replacing(path, mode=READABLE, is_synced=False) as temporary:
            temporary.write_text(json.dumps(data), encoding="utf-8")
    except OSError as error:
        raise ModelError(
            f"The thresholds cannot be stored: {error.strerror}", where=str(path), fix="Make room, or allow it."
        ) from error
    return path


def _reading(art: ArtConfig) -> dict[str, Any]:
    """Conditions of thresholds: with other blocks in another order an output moves otherwise."""
    return {"block_size": art.block_size, "traversal": "importance"}


def _path(fingerprint: str, pot: PotConfig) -> Path:
    # A cache of everything is read by age alone, one that was distilled by importance.
    kind = "" if pot.method.distills else "-whole"
    return cache_dir() / "thresholds" / f"{fingerprint}{kind}.json"
