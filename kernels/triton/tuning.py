"""Launch choices of Triton kernels, found by timing: once per kind of call and GPU, kept in the cache folder.

ONDEVICE_TUNING=off takes the first candidate instead; so does a call that a CUDA graph records, where nothing can be
timed. A file that cannot be read or written is no reason to fail.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import torch

_FILE = "triton_tuning.json"
_MILLISECONDS = 10  # of timing for each candidate, after the compilation

_known: dict[str, Choice] = {}


class Choice(NamedTuple):
    """Programs per KV head, warps of each, and tiles that are read ahead."""

    num_splits: int
    num_warps: int
    num_stages: int


def tuned(key: str, device: torch.device, candidates: Sequence[Choice], launch: Callable[[Choice], None]) -> Choice:
    """The fastest candidate for calls of the kind `key`; tried at the first such call, the first one else."""
    key = f"{torch.cuda.get_device_name(device)}, {key}"
    if key in _known:
        return _known[key]
    if not _known:
        _known.update(_read())
        if key in _known:
            return _known[key]
    if os.environ.get("ONDEVICE_TUNING") == "off" or torch.cuda.is_current_stream_capturing():
        return candidates[0]
    _known[key] = _fastest(candidates, launch)
    _write({**_read(), **_known})
    return _known[key]


def _fastest(candidates: Sequence[Choice], launch: Callable[[Choice], None]) -> Choice:
    from triton.testing import do_bench

    best, best_time = candidates[0], float("inf")
    for choice in dict.fromkeys(candidates):
        try:
            time = do_bench(lambda c=choice: launch(c), warmup=_MILLISECONDS, rep=_MILLISECONDS, return_mode="median")
        except (RuntimeError, torch.OutOfMemoryError):  # too much shared memory for this GPU, or for the measuring
            continue
        if time < best_time:
            best, best_time = choice, time
    return best


def cache_folder() -> Path:
    """As `ondevice.model.loading.cache_folder` names it, where Triton runs: on Linux."""
    if folder := os.environ.get("ONDEVICE_CACHE"):
        return Path(folder).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "ondevice"


def _read() -> dict[str, Choice]:
    try:
        found = json.loads((cache_folder() / _FILE).read_text(encoding="utf-8"))
        return {str(key): Choice(*(int(number) for number in numbers)) for key, numbers in found.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def _write(choices: dict[str, Choice]) -> None:
    with contextlib.suppress(OSError):
        folder = cache_folder()
        folder.mkdir(parents=True, exist_ok=True)
        # As `ondevice.files.replacing` does, which kernels cannot import.
        descriptor, name = tempfile.mkstemp(dir=folder, prefix=f".{_FILE}.")
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(choices, file, indent=1, sort_keys=True)
        os.replace(name, folder / _FILE)
