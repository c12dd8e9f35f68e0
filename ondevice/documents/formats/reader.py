"""The interface of every format: a request in, numbered pages out, one at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ondevice.documents.types import Page
from ondevice.files import shown_name


@dataclass(frozen=True, slots=True)
class Request:
    """One file to read. `first` is above 1 when an earlier worker was lost on the page before."""

    path: str
    password: str | None = None
    first: int = 1

    @property
    def name(self) -> str:
        return shown_name(Path(self.path))


@dataclass(frozen=True, slots=True)
class Reader:
    """An open document.

    `num_pages` is known only where every page can be reached on its own; then `pages` begins at `Request.first`,
    and losing one page does not lose those after it. Otherwise `pages` begins at 1.
    """

    kind: str
    unit: str
    pages: Iterator[Page]
    num_pages: int | None = None
