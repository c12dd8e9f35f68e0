"""Limits of one document, beyond which it is given up. The worker limits itself where it can, the parent the rest."""

from __future__ import annotations

from dataclasses import dataclass

MAX_PAGES = 100_000  # of any document; readers that cut a text themselves cut so that there are fewer


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds for one document. The defaults let a manual of several thousand pages pass and stop a hostile file.

    Attributes:
        file_bytes: largest file that is opened at all.
        text_chars: characters of text that are kept of it; the memory that they and their tokens take is bounded by
            what is free, see `bounds`.
        memory_bytes: address space of the worker (RLIMIT_AS).
        cpu_seconds: processor time of one worker (RLIMIT_CPU).
        wall_seconds: time for the whole document; what was read until then is kept.
        open_seconds: time until the first page is begun: unpacking, repairing a broken cross-reference table.
        page_seconds: time for one page; a page that takes longer is given up and the others go on.
        max_restarts: how many pages may cost us the worker before the rest of the document is given up.
    """

    file_bytes: int = 500_000_000
    text_chars: int = 500_000_000
    memory_bytes: int = 1_500_000_000
    cpu_seconds: int = 600
    wall_seconds: float = 900.0
    open_seconds: float = 60.0
    page_seconds: float = 10.0
    max_restarts: int = 20
