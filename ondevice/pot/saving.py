"""Saved pots on disk: one safetensors file with a JSON header, written whole or not at all.

Tensors that several pots may have in common can lie beside it, each in a file that is named by its checksum.
Knows the files and the checksums, not what the tensors mean: the session gives and takes those.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import safetensors
import torch
from safetensors.torch import save_file
from torch import Tensor

from ondevice.errors import DamagedPot, PotError, PotMismatch
from ondevice.files import replacing
from ondevice.schema import SchemaError, loads

FORMAT = 5
_KEY, _SUM = "ondevice", "ondevice.sha256"  # of the header: its text, and the sha256 of that
_SUMS = "sha256"  # in the header: of each tensor, by name
BESIDE = ".tensor"  # ending of a file that holds one tensor, under this name, too
_CHECKSUM = re.compile(r"[0-9a-f]{64}")
# Room for a note on each page of the longest document; a reader takes a few times as much memory.
_MAX_HEADER_BYTES = 1 << 25
_MAX_THREADS = 4
_TYPES = frozenset(("F32", "F16", "BF16", "I64", "I32", "I8", "U16", "U8"))  # of tensors, as safetensors calls them


def write_pot(path: Path, tensors: Mapping[str, Tensor], header: dict[str, Any], beside: Collection[str] = ()) -> None:
    """Write `tensors` and `header` to `path`, replacing what is there only once everything is on disk.

    Args:
        beside: names of tensors that are written to files of their own in the same folder, before that.

    Raises:
        PotError: the file cannot be written, or the header is too large to be read again.
    """
    whole = {name: tensor.cpu().contiguous() for name, tensor in tensors.items()}
    sums = _checksums(whole)
    text = json.dumps({"format": FORMAT, **header, _SUMS: sums})
    # A quarter is for the tensors' own entries, and for what quoting adds.
    if 4 * len(text) > 3 * _MAX_HEADER_BYTES:
        raise PotError("The document has too many notes to be saved", where=str(path), fix="Save a part of it.")
    try:
        for name in beside:
            with replacing(path.with_name(sums[name] + BESIDE)) as temporary:
                save_file({BESIDE: whole.pop(name)}, temporary)
        with replacing(path) as temporary:
            save_file(whole, temporary, {_KEY: text, _SUM: _sha256(text)})
    except (OSError, safetensors.SafetensorError) as error:  # safetensors reports a full disk in its own way
        reason = getattr(error, "strerror", None) or error
        raise PotError(f"The pot cannot be saved: {reason}", where=str(path), fix="Choose another place.") from error


def read_header(path: Path) -> dict[str, Any]:
    """The JSON header of a saved pot, which has not changed since it was written.

    Raises:
        PotError: there is no such file, or it is not a saved pot.
        DamagedPot: it is one, and was changed.
        PotMismatch: another version has written it.
    """
    try:
        if path.exists() and not path.is_file():  # a pipe would be waited for
            raise SchemaError("it is no file")
        with open(path, "rb") as raw:
            size = int.from_bytes(raw.read(8), "little")
        metadata = _open(path).metadata() or {} if size <= _MAX_HEADER_BYTES else {}
        text = metadata[_KEY]
        header = loads(text, refuses_numbers=True)
        if not isinstance(header, dict):
            raise SchemaError("it is no object")
    except FileNotFoundError as error:
        raise PotError("There is no such file", where=str(path), fix="Check the path.") from error
    except (OSError, KeyError, SchemaError) as error:
        what = "This is not a saved pot, or it is damaged"
        raise PotError(what, where=str(path), fix="Read the document again.") from error
    found = header.get("format")
    if found != FORMAT:
        what = f"The pot was saved in format {found!r:.20}, this version reads format {FORMAT}"
        raise PotMismatch(what, where=str(path), fix="Read the document again.")
    if metadata.get(_SUM) != _sha256(text) or _SUMS not in header:
        raise DamagedPot("its header is not what was written", where=str(path))
    return header


def read_tensors(path: Path, checksums: Mapping[str, str], prefix: str = "") -> dict[str, Tensor]:
    """The tensors of a saved pot, on the CPU.

    Args:
        checksums: from its header.
        prefix: of the names of those that are wanted.

    Raises:
        DamagedPot: the file, or one beside it, is not what was written.
    """
    tensors = _tensors(path, prefix)
    checksums = {name: checksum for name, checksum in checksums.items() if name.startswith(prefix)}
    for name, checksum in checksums.items():
        if name in tensors or not _CHECKSUM.fullmatch(checksum):
            continue
        beside = path.with_name(checksum + BESIDE)
        if beside.is_file() and (tensor := _tensors(beside).get(BESIDE)) is not None:
            tensors[name] = tensor
    if changed := checksums.items() ^ _checksums(tensors).items():
        raise DamagedPot(f"{min(changed)[0]!r:.40} is not what was written", where=str(path))
    return tensors


def _tensors(path: Path, prefix: str = "") -> dict[str, Tensor]:
    """The tensors of one file whose names begin so, by name; raises DamagedPot."""
    try:
        file = _open(path)
        names = [name for name in file.keys() if name.startswith(prefix)]  # noqa: SIM118 - it is no mapping
        if strange := [name for name in names if file.get_slice(name).get_dtype() not in _TYPES]:
            raise DamagedPot(f"{min(strange)!r:.40} is of a wrong type", where=str(path))
        return {name: file.get_tensor(name) for name in names}
    except (OSError, safetensors.SafetensorError) as error:
        raise DamagedPot("its tensors cannot be read", where=str(path)) from error


def _open(path: Path) -> Any:
    """The file, as safetensors opens it; raises OSError."""
    try:
        return safetensors.safe_open(path, framework="pt")
    except (RuntimeError, safetensors.SafetensorError) as error:  # the former is torch's, where it has just gone
        raise OSError(str(error)) from error


def _checksums(tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """The sha256 of each tensor's type, shape and bytes, several at a time."""
    with ThreadPoolExecutor(min(os.cpu_count() or 1, _MAX_THREADS)) as threads:
        return dict(zip(tensors, threads.map(_checksum, tensors.values()), strict=True))


def _checksum(tensor: Tensor) -> str:
    digest = hashlib.sha256(f"{tensor.dtype} {list(tensor.shape)}".encode())
    if tensor.numel():  # else it may have strides that no bytes can have
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
