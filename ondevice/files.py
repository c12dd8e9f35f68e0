"""Folders of the user's files, texts that come with the program, and atomic writes.

A file is the old one or the new one, whenever writing stops.
"""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import resources
from pathlib import Path

PRIVATE, READABLE = 0o600, 0o644
_RANDOM_LETTERS, _STALE_SECONDS = 8, 3600.0  # of mkstemp; nobody writes that long without a byte
# A backslash stays as it is unless what follows would read as an escape.
_NO_TEXT = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]|\\(?=x[0-9a-f]{2})")


def asset(name: str) -> str:
    """The text of a file in assets/."""
    return (resources.files("ondevice.assets") / name).read_text(encoding="utf-8")


def data_dir() -> Path:
    """The folder for what users keep: `$ONDEVICE_DATA`, else where this system keeps such files."""
    from platformdirs import user_data_dir

    return Path(os.environ.get("ONDEVICE_DATA") or user_data_dir("ondevice")).expanduser()


@contextmanager
def replacing(path: Path, *, mode: int = PRIVATE, is_synced: bool = True) -> Iterator[Path]:
    """An empty file beside `path`, to fill: it takes the place of `path` when the block ends, and goes when it fails.

    Args:
        path: its folder is made where it is missing.
        mode: permissions of the new file.
        is_synced: push it to the disk first, so that a power cut leaves the old file or the new one, too.

    Raises:
        OSError: it cannot be written; `path` is as it was.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    _drop_stale(path)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(descriptor)
    temporary = Path(name)
    try:
        yield temporary
        if is_synced:
            sync_file(temporary)
        if mode != PRIVATE:  # which mkstemp gives
            temporary.chmod(mode)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _drop_stale(path: Path) -> None:
    """Delete what processes that were killed have left half written of this file, an hour ago or more."""
    beginning = f".{path.name}."
    with suppress(OSError), os.scandir(path.parent) as entries:
        for entry in entries:
            is_ours = entry.name.startswith(beginning) and len(entry.name) == len(beginning) + _RANDOM_LETTERS
            if is_ours and time.time() - entry.stat(follow_symlinks=False).st_mtime > _STALE_SECONDS:
                os.unlink(entry.path)


def escaped(name: str) -> str:
    r"""A path as text for tables and people: bytes that are no UTF-8, and control characters, as in `caf\xe9.txt`."""
    return _NO_TEXT.sub(lambda found: f"\\x{ord(found[0]) & 0xFF:02x}", name)


def sync_file(path: Path) -> None:
    """Push what a file holds to the disk."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Push the names of a folder's files to the disk."""
    if os.name == "posix":  # elsewhere a folder cannot be opened
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
