"""Hashes of files: of every byte, or of samples that take milliseconds for gigabytes."""

from __future__ import annotations

import hashlib
from pathlib import Path

_NUM_SAMPLES = 64
_SAMPLE_BYTES = 4096


def file_sha256(path: Path) -> str:
    """Hexadecimal sha256 of the whole file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sample_sha256(path: Path) -> str:
    """Hexadecimal sha256 of the file's size and of 64 evenly spread blocks of 4 KiB, first and last included.

    Tells checkpoints apart and notices a file that was cut or left half written; not a single flipped bit.
    """
    size = path.stat().st_size
    digest = hashlib.sha256(str(size).encode())
    with path.open("rb") as file:
        if size <= _NUM_SAMPLES * _SAMPLE_BYTES:
            digest.update(file.read())
        else:
            for index in range(_NUM_SAMPLES):
                file.seek((size - _SAMPLE_BYTES) * index // (_NUM_SAMPLES - 1))
                digest.update(file.read(_SAMPLE_BYTES))
    return digest.hexdigest()
