"""Thresholds of run-time termination that were measured for a model, kept beside its converted weights."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from ondevice.errors import ModelError
from ondevice.kernels.decode_attention import Termination
from ondevice.model.cache import cache_dir


def calibrated(fingerprint: str) -> Termination | None:
    """The rule that was stored for the model with this fingerprint; None without one that can be read."""
    try:
        return Termination(**json.loads(_path(fingerprint).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def store(fingerprint: str, termination: Termination) -> Path:
    """Keep a rule for a model; returns the file.

    Raises:
        ModelError: it cannot be written.
    """
    path = _path(fingerprint)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(termination)), encoding="utf-8")
    except OSError as error:
        raise ModelError(
            f"The thresholds cannot be stored: {error.strerror}", where=str(path), fix="Make room, or allow it."
        ) from error
    return path


def _path(fingerprint: str) -> Path:
    return cache_dir() / "thresholds" / f"{fingerprint}.json"
