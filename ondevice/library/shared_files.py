"""Files that entries of the library have in common: once on the disk, hard-linked into each folder.

So no entry refers to another one, or to a place that somebody has to look after: whichever goes, and whoever is killed
meanwhile, the others have all that is theirs, and the bytes go with the last name. Where a file system has no hard
links, each entry has a copy.
"""

from __future__ import annotations

import filecmp
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path


def share(files: Iterable[Path], folders: Iterable[Path]) -> None:
    """Let files be those of the same name and bytes in other folders, where there are such.

    A name says what the bytes are: it is made of their hash. They are compared all the same, for what is on a disk may
    have been damaged since.
    """
    others = list(folders)
    for file in files:
        for folder in others:
            with suppress(OSError):  # it has just been deleted, or this disk has no hard links, or no further ones
                if _becomes(file, folder / file.name):
                    break


def bytes_on_disk(folders: Iterable[Path]) -> int:
    """Bytes of the files in folders: those with several names count once."""
    found: dict[tuple[int, int], int] = {}
    for folder in folders:
        with suppress(OSError):  # it has just been deleted
            for file in folder.iterdir():
                about = file.lstat()
                found[about.st_dev, about.st_ino] = about.st_size
    return sum(found.values())


def _becomes(file: Path, other: Path) -> bool:
    """Make a file a second name of another one; False if that is not the same. Raises OSError."""
    if not other.is_file() or other.is_symlink() or not filecmp.cmp(file, other, shallow=False):
        return False
    link = file.with_name(f".{file.name}")
    os.link(other, link)
    os.replace(link, file)
    return True
