"""A file to a `Document`, with a killable worker between the file and us.

The parent never parses. A page on which the worker is stuck or breaks down is given up, a new worker goes on with the
next page, and whatever has been read stays read.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from ondevice.documents.bounds import Intake
from ondevice.documents.formats.reader import Request
from ondevice.documents.types import Document
from ondevice.documents.worker.limits import Limits
from ondevice.documents.worker.outcome import Collected, finish
from ondevice.documents.worker.process import Worker
from ondevice.errors import DocumentError, DocumentTooLarge
from ondevice.files import escaped
from ondevice.machine.memory import free_memory_bytes
from ondevice.regular_file import identity_of, open_regular

if TYPE_CHECKING:
    from ondevice.events import PagesExtracted

# The longest time between two values of `extract`, so that a caller can stop it or redraw while a page is slow.
HEARTBEAT_SECONDS = 0.25
_OCR_SECONDS = 180.0  # for one page, on a small machine that is busy
_USUAL = Limits()
Measure = Callable[[], int]  # of bytes that are free now


def read(
    path: str | Path, *, password: str | None = None, limits: Limits = _USUAL, free_memory: Measure = free_memory_bytes
) -> Document:
    """The document in `path`. See `extract`."""
    return watched(extract(path, password=password, limits=limits, free_memory=free_memory), lambda _: None)


def watched(steps: Generator[PagesExtracted, None, Document], show: Callable[[PagesExtracted], object]) -> Document:
    """The document that `extract` returns; `show` is given its progress. Whatever interrupts it kills the parser."""
    with closing(steps):
        while True:
            try:
                show(next(steps))
            except StopIteration as stop:
                document: Document = stop.value
                return document


def extract(
    path: str | Path, *, password: str | None = None, limits: Limits = _USUAL, free_memory: Measure = free_memory_bytes
) -> Generator[PagesExtracted, None, Document]:
    """Yield progress while the document is parsed, return the document. Closing the generator kills the parser.

    Args:
        free_memory: bytes that are free now; asked again and again while the text comes in.

    Raises:
        DocumentError: one of its kinds, when nothing at all could be read.
        DocumentTooLarge: its text does not fit into the free memory.
    """
    # Imported here: events need numpy, which the worker must not load.
    from ondevice.events import PagesExtracted

    with open_regular(path, limits.file_bytes) as opened:
        file = Path(os.path.realpath(opened.name))
        collected = Collected(escaped(file.name))
        deadline = time.monotonic() + limits.wall_seconds
        request = Request(str(file), password, identity=identity_of(opened))  # the worker opens it by its name again
        sha256, size_bytes = "", os.fstat(opened.fileno()).st_size
        intake = Intake(collected.name, size_bytes, free_memory)
        for _ in range(limits.max_restarts + 1):
            with Worker(replace(request, first=len(collected.pages) + 1), limits, intake.take) as worker:
                sha256 = sha256 or hashlib.file_digest(opened, "sha256").hexdigest()  # while the worker starts
                for _ in _watch(worker, collected, limits, deadline):
                    yield PagesExtracted(len(collected.pages), collected.num_pages)
            if not collected.can_continue or time.monotonic() > deadline or collected.num_chars > limits.text_chars:
                break
            collected.give_up_page()
            if not collected.can_continue:
                break
        else:
            collected.lost = "too many pages before it had to be given up"
        yield from _recognise(request, collected, limits)
        return finish(collected, size_bytes=size_bytes, sha256=sha256)


def _recognise(request: Request, collected: Collected, limits: Limits) -> Iterator[PagesExtracted]:
    """Have OCR read scanned pages of a PDF, and those with letters of no meaning; what it does not get to stays so."""
    from ondevice.events import PagesExtracted

    scans = tuple(page.number for page in collected.pages if page.problem_code in ("scan", "letters"))
    if not scans or collected.kind != "pdf" or find_spec("ocrust") is None:
        return
    deadline = time.monotonic() + limits.wall_seconds
    with Worker(replace(request, scans=scans), limits) as worker:
        while time.monotonic() < min(deadline, worker.last_message_time + _OCR_SECONDS):
            try:
                message = worker.receive(HEARTBEAT_SECONDS) or {}
                if message.get("type") == "page":
                    collected.take(message)
                elif message.get("type") not in ("opened", None):
                    return
            except (EOFError, ValueError):
                return
            yield PagesExtracted(len(collected.pages), collected.num_pages)


def _watch(worker: Worker, collected: Collected, limits: Limits, deadline: float) -> Iterator[None]:
    """Collect the pages of one worker until it is done, lost or too slow; stop for the caller all along."""
    has_opened = False
    while not collected.is_complete:
        try:
            message = worker.receive(HEARTBEAT_SECONDS)
            if message is not None:
                collected.take(message)
                has_opened = True
        except (EOFError, ValueError) as end:
            collected.lost = str(end)
            return
        except DocumentError as error:
            # Late damage must not cost what has been read.
            if not collected.has_text or isinstance(error, DocumentTooLarge):
                raise
            collected.lost = error.what
            return
        now = time.monotonic()
        # Where pages are not read one by one, the first may stand for the whole work.
        allowed = limits.page_seconds if has_opened and collected.num_pages is not None else limits.open_seconds
        if collected.num_chars > limits.text_chars:
            collected.lost = f"the document holds more than {limits.text_chars:,} characters"
            return
        if now > deadline:
            collected.lost = f"reading the document takes longer than {limits.wall_seconds:g} seconds"
            return
        if message is None and now - worker.last_message_time > allowed:
            collected.lost = f"it takes longer than {allowed:g} seconds"
            return
        yield
