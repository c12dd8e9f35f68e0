"""Bounds of one document in this process: a share of the memory that is free, and a number of pages.

Both are asked while the document comes in, and its memory before, as far as that is known then.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from ondevice.documents.worker.limits import MAX_PAGES
from ondevice.errors import DocumentTooLarge

_SHARE = 0.5  # of the free memory; the rest is for the pot and the forward passes
_STEP_BYTES = 1_000_000  # by which it grows between two looks at the free memory
_PAGE_BYTES = 300  # of a page beside its text
# Four characters to a token in English, 8 bytes to a token: a guess until the tokens are there to be counted.
_TOKEN_BYTES_PER_CHAR = 2
_SPLIT_FIX = "Split the file, or save the part of it that you need as plain text."


class Room:
    """The memory that a document takes, measured against what is free.

    Args:
        name: of the document, for the error.
        free_memory: bytes that are free now; what the document has taken is not among them any more.
    """

    def __init__(self, name: str, free_memory: Callable[[], int]) -> None:
        self._name, self._free_memory = name, free_memory
        self._taken = self._seen = 0

    def take(self, num_bytes: int, coming: int = 0) -> None:
        """Count what the document takes more now.

        Args:
            coming: bytes that it will need beside all it has taken so far.

        Raises:
            DocumentTooLarge: that is more than a document may take.
        """
        self._taken += num_bytes
        needed = self._taken + coming
        if needed < self._seen + _STEP_BYTES:
            return
        self._seen = needed
        free = self._free_memory() + self._taken
        if needed > _SHARE * free:
            raise DocumentTooLarge(
                f"its text and tokens need about {needed / 1e6:,.0f} MB; {free / 1e6:,.0f} MB of memory are free, "
                f"and a document may take {_SHARE:.0%} of that",
                where=self._name,
                fix=f"Close other documents or programs. {_SPLIT_FIX}",
            )


class Intake:
    """Watches what the workers of one document send, in the thread that receives it.

    Args:
        name: of the document.
        size_bytes: of its file.
        free_memory: as of `Room`.
    """

    def __init__(self, name: str, size_bytes: int, free_memory: Callable[[], int]) -> None:
        self._name, self._size_bytes = name, size_bytes
        self._room = Room(name, free_memory)
        self._num_pages = self._num_chars = 0

    def take(self, message: dict[str, Any]) -> None:
        """Count one message; raises DocumentTooLarge for too many pages, or text that does not fit into the memory."""
        match message:
            case {"type": "opened", "kind": "txt" | "md" | "csv" | "jsonl"}:
                self._room.take(0, coming=self._size_bytes)  # nothing else is known before the text is there
            case {"type": "page", "text": str(text)}:
                self._num_pages += 1
                self._num_chars += len(text)
                if self._num_pages > MAX_PAGES:
                    what = f"it falls into more than {MAX_PAGES:,} pages or sections"
                    raise DocumentTooLarge(what, where=self._name, fix=_SPLIT_FIX)
                self._room.take(sys.getsizeof(text) + _PAGE_BYTES, coming=_TOKEN_BYTES_PER_CHAR * self._num_chars)
