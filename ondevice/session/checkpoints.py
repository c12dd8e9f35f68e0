"""Readings that are under way, kept on disk so that no more than the last moments of one are lost.

One file a document, model and settings, in a folder that only this user may read; the oldest go first where they take
too much of the disk.
"""

from __future__ import annotations

import hashlib
import time
from contextlib import suppress
from pathlib import Path

from ondevice.documents.types import Document
from ondevice.errors import PotError
from ondevice.events import Event
from ondevice.files import data_dir, sync_folder
from ondevice.machine.memory import free_memory_bytes, usable_bytes
from ondevice.session.content_address import content_address
from ondevice.session.engine import Engine, Session
from ondevice.session.saving import most_saved_bytes, require_place, require_resumable, save_reading

MOST_BYTES = 8_000_000_000  # of all of them
EVERY_SECONDS = 20.0  # with a pass of the model on top, less than 30 s are lost
_MOST_SHARE = 0.05  # of the time that writing may take: a large pot is written more seldom
_COPIES = 2  # of what is written, in memory while it is
_STALE_SECONDS = 600  # after which a file that was half written belongs to a process that is gone
_READING = ".reading"


class Pace:
    """When a reading is to be written again, by `time.monotonic`."""

    def __init__(self) -> None:
        self._next = time.monotonic() + EVERY_SECONDS

    @property
    def is_due(self) -> bool:
        """True if it is time."""
        return time.monotonic() >= self._next

    def wrote(self, began: float) -> None:
        """It has been written, which began at that time of the clock."""
        ended = time.monotonic()
        self._next = ended + max(EVERY_SECONDS, (ended - began) / _MOST_SHARE)


class Checkpoints:
    """The readings in a folder.

    Args:
        folder: made when the first one is written; default: `readings` in `data_dir()`.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or data_dir() / "readings"

    def place(self, engine: Engine, document: Document) -> Path:
        """The folder of this text's reading with the engine's model and settings; not of a stream."""
        address, prompt = content_address(engine.loaded, document, engine.config), engine.plan().chat.prefix
        return self.named(hashlib.sha256(f"{address} {prompt}".encode()).hexdigest())

    def named(self, name: str) -> Path:
        """The folder of a reading of that name."""
        return self.folder / f"{name}{_READING}"

    def write(self, session: Session, place: Path) -> list[Event]:
        """Keep a session as it is between two passes, over what was kept there; returns events as `save_reading`.

        Raises:
            NotResumable: its reading cannot be kept in its middle.
            PotError: disk or memory have no room, or the folder cannot be written.
        """
        require_resumable(session)
        num_bytes = most_saved_bytes(session)
        if num_bytes > MOST_BYTES:
            raise PotError(
                f"The reading takes up to {num_bytes / 1e9:.1f} GB, and {MOST_BYTES / 1e9:.1f} GB may be kept",
                fix="Lower {pot.capacity} or {tier.budget_bytes}.",
            )
        free = usable_bytes(free_memory_bytes())
        if _COPIES * num_bytes > free:
            raise PotError(
                f"A copy takes {_COPIES * num_bytes / 1e9:.1f} GB of memory, and {free / 1e9:.1f} GB are free for it",
                fix="Lower {pot.capacity} or {tier.budget_bytes}.",
            )
        require_place(place, num_bytes)
        with suppress(OSError):  # where it is somebody else's, the files are private still
            self.folder.chmod(0o700)
        events = save_reading(session, place)
        sync_folder(self.folder)
        self._make_room(place)
        return events

    def remove(self, place: Path) -> None:
        """Delete what is kept there."""
        with suppress(OSError):
            place.unlink(missing_ok=True)

    def _make_room(self, newest: Path) -> None:
        """Delete what a killed process left half written, and the oldest readings beyond the limit."""
        found = []
        with suppress(OSError):
            for path in self.folder.iterdir():
                if path.is_file() and _READING in path.name and path != newest:
                    about = path.stat()
                    found.append((about.st_mtime, about.st_size, path))
        used = newest.stat().st_size if newest.exists() else 0
        for written, size, path in sorted(found, reverse=True):
            used += size
            is_stale = path.name.startswith(".") and time.time() - written > _STALE_SECONDS
            if used > MOST_BYTES or is_stale:
                self.remove(path)
