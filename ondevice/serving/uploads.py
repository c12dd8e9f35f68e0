"""Files on their way in: taken out of Gradio's folder at once, kept privately, deleted as soon as they are read.

Gradio would serve an upload to anyone who knows its path; here it lies in a folder that no route reaches.
"""

from __future__ import annotations

import os
import secrets
import shutil
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from ondevice import words
from ondevice.documents import Limits
from ondevice.errors import DocumentError
from ondevice.regular_file import FREE_BYTES_LEFT, copy_file, require_space

_NAME_BYTES = 150
_MOST_WAITING_BYTES, _WAITING_SECONDS = 2_000_000_000, 900.0  # of files that were sent and not opened yet
_FULL = "The disk is nearly full."


@dataclass(frozen=True, slots=True)
class Upload:
    """One private file."""

    path: Path

    def discard(self) -> None:
        shutil.rmtree(self.path.parent, ignore_errors=True)


class UploadGuard:
    """Refuses what Gradio's own route would store beyond a quota, or on a disk that is nearly full.

    What is stored there waits for a page to open it, and a program may store and never open.

    Args:
        app: the next application.
        folder: where Gradio stores.
    """

    def __init__(self, app: ASGIApp, folder: Path) -> None:
        self._app, self._folder = app, folder
        self._coming: dict[int, int] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST" or not scope["path"].rstrip("/").endswith("/upload"):
            await self._app(scope, receive, send)
            return
        announced = Headers(scope=scope).get("content-length", "")
        num_bytes = int(announced) if announced.isdigit() else Limits().file_bytes
        waiting = sum(self._coming.values()) + sum(map(_size, _files(self._folder)))
        free = shutil.disk_usage(self._folder).free - sum(self._coming.values())
        if waiting + num_bytes > _MOST_WAITING_BYTES or free < num_bytes + FREE_BYTES_LEFT:
            text = "Too many files wait to be opened." if free >= num_bytes + FREE_BYTES_LEFT else _FULL
            await PlainTextResponse(text, 507, {"Connection": "close"})(scope, receive, send)
            return
        key = id(scope)
        self._coming[key] = num_bytes
        try:
            await self._app(scope, receive, send)
        finally:
            del self._coming[key]


def drop_waiting(folder: Path, seconds: float = _WAITING_SECONDS) -> None:
    """Delete what was stored there so long ago and never opened."""
    for path in _files(folder):
        with suppress(OSError):
            if time.time() - path.stat().st_mtime > seconds:
                path.unlink()


def _size(path: Path) -> int:
    """0 where it has just been taken."""
    with suppress(OSError):
        return path.stat().st_size
    return 0


def _files(top: Path) -> list[Path]:
    """All files below; a folder may be taken meanwhile."""
    return [Path(folder, name) for folder, _, names in os.walk(top) for name in names]


class Uploads:
    """The private folder of uploads.

    Args:
        folder: an empty folder that only this user may enter.
        limits: an upload larger than these allow is refused before it is moved.

    Attributes:
        max_bytes: of the largest file that is taken.
    """

    def __init__(self, folder: Path, limits: Limits = Limits()) -> None:  # noqa: B008
        self._folder, self.max_bytes = folder, limits.file_bytes

    def take(self, received: Path) -> Upload:
        """Move a file that Gradio has received into a folder of its own.

        Raises:
            DocumentError: it is too large, the disk is nearly full, or it is not there (any more): Gradio stores the
                same file once, however often it was chosen.
        """
        name = received.name
        try:
            num_bytes = received.stat().st_size
            if num_bytes > self.max_bytes:
                what = f"The file has {words.size(num_bytes)}; the limit is {words.size(self.max_bytes)}"
                raise DocumentError(what, where=name, fix="Split it, or save it as plain text.")
            require_space(self._folder, 0, name)  # it is moved
            target = self._folder / secrets.token_hex(16) / name
            target.parent.mkdir(mode=0o700)
            shutil.move(received, target)
        except OSError as error:
            what = f"The file cannot be taken: {error.strerror or 'an error of the disk'}"
            raise DocumentError(what, where=name, fix="Choose it once more.") from error
        finally:
            received.unlink(missing_ok=True)
            # Gradio gives every upload a folder of its own; anything else in it is not ours to delete.
            if received.parent.is_dir() and not any(received.parent.iterdir()):
                received.parent.rmdir()
        return Upload(target)

    def require_space(self, num_bytes: int) -> None:
        """Raise DocumentError where the disk has no room for a file of that size."""
        require_space(self._folder, num_bytes, "upload")

    def receive(self, content: BinaryIO, name: str) -> Upload:
        """Copy a file that came in over HTTP, or that an assistant named, under a name that is not ours.

        Raises:
            DocumentError: as `copy_file`.
        """
        safe = "".join(c for c in name.replace("\\", "/").rpartition("/")[2] if c.isprintable())
        safe = safe.encode()[-_NAME_BYTES:].decode(errors="ignore")
        safe = safe if safe.strip(". ") else "document"
        upload = Upload(self._folder / secrets.token_hex(16) / safe)
        upload.path.parent.mkdir(mode=0o700)
        try:
            copy_file(content, upload.path, self.max_bytes, safe)
        except DocumentError:
            upload.discard()
            raise
        return upload
