"""Files on their way in: taken out of Gradio's folder at once, kept privately, deleted as soon as they are read.

Gradio would serve an upload to anyone who knows its path; here it lies in a folder that no route reaches.
"""

from __future__ import annotations

import secrets
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from ondevice import words
from ondevice.documents import Limits
from ondevice.errors import DocumentError

_NAME_LENGTH = 150
_FREE_BYTES_LEFT = 500_000_000  # what must stay free on the disk beside an upload


@dataclass(frozen=True, slots=True)
class Upload:
    """One private file."""

    path: Path

    def discard(self) -> None:
        shutil.rmtree(self.path.parent, ignore_errors=True)


class Uploads:
    """The private folder of uploads.

    Args:
        folder: an empty folder that only this user may enter.
        limits: an upload larger than these allow is refused before it is moved.
    """

    def __init__(self, folder: Path, limits: Limits = Limits()) -> None:  # noqa: B008
        self._folder = folder
        self._limits = limits

    def take(self, received: Path) -> Upload:
        """Move a file that Gradio has received into a folder of its own.

        Raises:
            DocumentError: it is too large, the disk is nearly full, or it is not there (any more): Gradio stores the
                same file once, however often it was chosen.
        """
        name = received.name
        try:
            num_bytes = received.stat().st_size
            if num_bytes > self._limits.file_bytes:
                raise DocumentError(
                    f"The file has {words.size(num_bytes)}; the limit is {words.size(self._limits.file_bytes)}",
                    where=name,
                    fix="Split it, or save it as plain text.",
                )
            if shutil.disk_usage(self._folder).free < _FREE_BYTES_LEFT:
                raise DocumentError("The disk is nearly full", where=name, fix="Make room, then try again.")
            target = self._folder / secrets.token_hex(16) / name
            target.parent.mkdir(mode=0o700)
            shutil.move(received, target)
        except OSError as error:
            reason = error.strerror or "an error of the disk"
            raise DocumentError(
                f"The file cannot be taken: {reason}", where=name, fix="Choose it once more."
            ) from error
        finally:
            self._discard_received(received)
        return Upload(target)

    @property
    def max_bytes(self) -> int:
        """The largest file that is taken."""
        return self._limits.file_bytes

    def receive(self, content: BinaryIO, name: str) -> Upload:
        """Take a file that came in over HTTP, under a name that is not ours.

        Raises:
            DocumentError: the disk is nearly full.
        """
        safe = "".join(c for c in name.replace("\\", "/").rpartition("/")[2] if c.isprintable())[-_NAME_LENGTH:]
        safe = safe if safe.strip(". ") else "document"
        if shutil.disk_usage(self._folder).free < _FREE_BYTES_LEFT:
            raise DocumentError("The disk is nearly full", where=safe, fix="Make room, then try again.")
        upload = Upload(self._folder / secrets.token_hex(16) / safe)
        upload.path.parent.mkdir(mode=0o700)
        try:
            with upload.path.open("wb") as file:
                shutil.copyfileobj(content, file)
        except OSError as error:
            upload.discard()
            raise DocumentError(f"The file cannot be stored: {error.strerror}", where=safe, fix="Make room.") from error
        return upload

    def copy(self, source: Path, name: str) -> Upload:
        """A private copy of a file that belongs to the program."""
        target = self._folder / secrets.token_hex(16) / name
        target.parent.mkdir(mode=0o700)
        shutil.copyfile(source, target)
        return Upload(target)

    @staticmethod
    def _discard_received(received: Path) -> None:
        received.unlink(missing_ok=True)
        # Gradio gives every upload a folder of its own; anything else in it is not ours to delete.
        if received.parent.is_dir() and not any(received.parent.iterdir()):
            received.parent.rmdir()
