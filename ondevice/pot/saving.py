"""Saved pots on disk: one safetensors file with a JSON header, written whole or not at all.

Knows the file and its checks, not what the tensors mean: the session gives and takes those.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import safetensors
from safetensors.torch import save_file
from torch import Tensor

from ondevice.errors import PotError, PotMismatch

FORMAT = 3
_KEY = "ondevice"
_NAMES = {"model": "another model", "tokenizer": "another tokenizer", "dtype": "another data type"}


def write_pot(path: Path, tensors: dict[str, Tensor], header: dict[str, Any]) -> None:
    """Write `tensors` and `header` to `path`, replacing what is there only once everything is on disk.

    Raises:
        PotError: the file cannot be written.
    """
    metadata = {_KEY: json.dumps({"format": FORMAT, **header})}
    temporary: str | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        os.close(handle)
        save_file({name: tensor.cpu().contiguous() for name, tensor in tensors.items()}, temporary, metadata)
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
        temporary = None
    except (OSError, safetensors.SafetensorError) as error:  # safetensors tells of a full disk in its own way
        reason = getattr(error, "strerror", None) or error
        raise PotError(f"The pot cannot be saved: {reason}", where=str(path), fix="Choose another place.") from error
    finally:
        if temporary is not None:
            os.unlink(temporary)


def read_header(path: Path) -> dict[str, Any]:
    """The JSON header of a saved pot.

    Raises:
        PotError: there is no such file, or it is not a saved pot.
    """
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
        header = json.loads(metadata[_KEY])
    except FileNotFoundError as error:
        raise PotError("There is no such file", where=str(path), fix="Check the path.") from error
    except (OSError, KeyError, ValueError, safetensors.SafetensorError) as error:
        raise PotError(
            "This is not a saved pot, or it is damaged", where=str(path), fix="Read the document again."
        ) from error
    if header.get("format") != FORMAT:
        raise PotMismatch(
            f"The pot was saved in format {header.get('format')}, this version reads format {FORMAT}",
            where=str(path),
            fix="Read the document again.",
        )
    return header


def read_tensors(path: Path) -> dict[str, Tensor]:
    """All tensors of a saved pot, on the CPU.

    Raises:
        PotError: the file is damaged.
    """
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            names = list(file.keys())
            return {name: file.get_tensor(name) for name in names}
    except (OSError, safetensors.SafetensorError) as error:
        raise PotError("The saved pot is damaged", where=str(path), fix="Read the document again.") from error


def check_match(path: Path, saved: dict[str, Any], expected: dict[str, Any]) -> None:
    """Refuse a pot that was made by something else.

    Args:
        saved, expected: headers; `method` holds the settings of the pot, the other entries are fingerprints.

    Raises:
        PotMismatch: says what differs.
    """
    reasons = [name for key, name in _NAMES.items() if saved.get(key) != expected[key]]
    method, saved_method = expected["method"], saved.get("method", {})
    reasons += [
        f"{option}={_show(saved_method.get(option))} instead of {_show(value)}"
        for option, value in method.items()
        if _plain(saved_method.get(option)) != _plain(value)
    ]
    if reasons:
        raise PotMismatch(
            f"The pot was saved with {', '.join(reasons)}",
            where=str(path),
            fix="Use the same model and settings, or read the document again.",
        )


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _show(value: Any) -> str:
    return repr(_plain(value))
