"""A file that a user, a program or an assistant names, opened: a regular file within a limit, or the reason why not.

Every door opens documents here. A pipe would make its reader wait for ever, and a device never ends.
"""

from __future__ import annotations

import os
import shutil
import stat
import sys
from collections.abc import Iterator, Sequence
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO

from ondevice.errors import DocumentError, EmptyDocument
from ondevice.files import escaped

SYSTEM_FOLDERS = tuple(map(Path, ("/proc", "/sys", "/dev")))  # never opened from, whatever folders are allowed
FREE_BYTES_LEFT = 500_000_000  # what must stay free on the disk beside a copy
_BLOCK_BYTES = 1 << 20
_OPEN_FILES = Path("/proc/self/fd")  # where Linux says which file a descriptor has open


def open_regular(
    path: str | Path, max_bytes: int = sys.maxsize, folders: Sequence[Path] | None = None
) -> BufferedReader:
    """Open a regular file that holds something; never waits.

    Args:
        path: `~` is the home folder.
        max_bytes: size of the largest file that is opened.
        folders: resolved ones, outside of which nothing is opened, and nothing hidden in them; None: anywhere.

    Raises:
        DocumentError: it is not there, no regular file, too large, outside of the folders, or may not be read.
        EmptyDocument: it has 0 bytes.
    """
    where = escaped(str(path))
    try:
        named = Path(path).expanduser()
        if folders is not None:
            named = named.resolve()
            _require_within(named, folders, where)
        # Looked at before it is opened, which would let the writer of a pipe go on, or move a tape; and looked at again
        # afterwards, because the name may lead elsewhere by then.
        _require_regular(named.stat(), max_bytes, named)
        file = open(named, "rb", opener=_without_waiting)  # noqa: SIM115 - the caller's
        try:
            _require_regular(os.fstat(file.fileno()), max_bytes, named)
            if folders is not None and _OPEN_FILES.is_dir():
                _require_within((_OPEN_FILES / str(file.fileno())).readlink(), folders, where)
        except BaseException:
            file.close()
            raise
    except (FileNotFoundError, NotADirectoryError):
        raise DocumentError("there is no such file", where=where, fix="Check the name and the folder.") from None
    except PermissionError:
        fix = "Change its permissions, or copy it to a place that you can read."
        raise DocumentError("the file may not be read", where=where, fix=fix) from None
    except ValueError:  # a NUL, or half of a surrogate pair
        what = "the file cannot be opened: its name has a character that no file name can have"
        raise DocumentError(what, where=where, fix="Check the name.") from None
    except (OSError, RuntimeError) as error:  # the second from pathlib: an unknown user, or links in a circle
        reason = (getattr(error, "strerror", None) or str(error)).rstrip(".")
        raise DocumentError(
            f"the file cannot be opened: {reason}", where=where, fix="Check the name, or copy the file."
        ) from None
    return file


def identity_of(file: BinaryIO) -> tuple[int, int]:
    """Numbers that no other file of this machine has while it is open, whatever its name leads to by now."""
    about = os.fstat(file.fileno())
    return about.st_dev, about.st_ino


def blocks(file: BinaryIO, max_bytes: int, where: str) -> Iterator[bytes]:
    """Read a file to its end, a megabyte at a time.

    Raises:
        DocumentError: more than `max_bytes` come.
    """
    num_bytes = 0
    while block := file.read(_BLOCK_BYTES):
        num_bytes += len(block)
        if num_bytes > max_bytes:
            raise _too_large(f"more than {max_bytes:,}", max_bytes, where)
        yield block


def copy_file(source: BinaryIO, target: Path, max_bytes: int, where: str) -> None:
    """Copy a file that can be sought, and leave space on the disk.

    Args:
        target: its folder is there.
        where: names the file in errors.

    Raises:
        DocumentError: it is larger than `max_bytes`, the disk is nearly full, or it cannot be written.
    """
    num_bytes = source.seek(0, os.SEEK_END)
    source.seek(0)
    try:
        require_space(target.parent, num_bytes, where)
        with target.open("xb") as file:
            for block in blocks(source, max_bytes, where):
                file.write(block)
    except OSError as error:
        raise DocumentError(f"the file cannot be stored: {error.strerror}", where=where, fix="Make room.") from error


def require_space(folder: Path, num_bytes: int, where: str) -> None:
    """Raise DocumentError where a file of that size would leave too little of the disk free."""
    if shutil.disk_usage(folder).free < num_bytes + FREE_BYTES_LEFT:
        raise DocumentError("the disk is nearly full", where=where, fix="Make room, then try again.")


def _require_regular(found: os.stat_result, max_bytes: int, path: Path) -> None:
    where = escaped(str(path))
    if stat.S_ISDIR(found.st_mode):
        raise DocumentError(
            "this is a folder, not a document", where=where, fix="Name one file in it, or pack it as a ZIP archive."
        )
    if not stat.S_ISREG(found.st_mode):
        raise DocumentError(
            "this is a pipe or a device, not a regular file",
            where=where,
            fix="Name a file. What a command writes goes in through standard input: COMMAND | ondevice ask - QUESTION.",
        )
    if found.st_size == 0:
        raise EmptyDocument(
            "the file has 0 bytes", where=escaped(path.name), fix="Get it again: nothing of it has arrived."
        )
    if found.st_size > max_bytes:
        raise _too_large(f"{found.st_size:,}", max_bytes, escaped(path.name))


def _require_within(path: Path, folders: Sequence[Path], where: str) -> None:
    """Raise unless a resolved path lies in one of the folders, in nothing hidden there, and in none of the system's."""
    is_inside = any(
        path.is_relative_to(folder) and not any(part.startswith(".") for part in path.relative_to(folder).parts)
        for folder in folders
    )
    if not is_inside or any(path.is_relative_to(folder) for folder in SYSTEM_FOLDERS):
        listed = ", ".join(escaped(str(folder)) for folder in folders)
        raise DocumentError(
            f"only files in these folders are opened, and no hidden ones: {listed}",
            where=where,
            fix="Ask the user to put the file there, or to start `ondevice mcp` with its folder as a root.",
        )


def _too_large(size: str, max_bytes: int, where: str) -> DocumentError:
    what = f"the file has {size} bytes; the limit is {max_bytes:,}"
    return DocumentError(what, where=where, fix="Split it, or save it as plain text and pipe that in.")


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
