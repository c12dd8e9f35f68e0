"""From an uploaded file to a document with its card and its cells, and from there to an empty pot for it."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import closing

from ondevice.documents import Document, extract
from ondevice.documents.tokens import DocumentTokens, Encode
from ondevice.events import PagesExtracted
from ondevice.serving.job_events import Waiting
from ondevice.serving.uploads import Upload
from ondevice.serving.workspace import Workspace


def open_upload(
    workspace: Workspace, upload: Upload, password: str | None, encode: Encode, until: Generator[Waiting, None, bool]
) -> Generator[PagesExtracted | Waiting, None, bool]:
    """Extract the text, count its tokens, and put the document into the workspace.

    Args:
        until: what to wait for before tokens are counted; False from it: stopped meanwhile.

    Returns:
        Whether it is there; stopping leaves the workspace with the document it had, and so does a document that does
        not fit into memory.

    Raises:
        DocumentError: as `extract` does, or there is no text in it.
    """
    workspace.pages, workspace.opening_name = None, upload.path.name
    steps = extract(upload.path, password=password or None)
    with closing(steps):
        while True:
            try:
                workspace.pages = next(steps)
            except StopIteration as stop:
                document: Document = stop.value
                break
            yield workspace.pages
            if workspace.stop.is_set():
                return False
    if not (yield from until):
        return False
    take_in(workspace, document, encode)
    return True


def take_in(workspace: Workspace, document: Document, encode: Encode) -> None:
    """Put a document into the workspace, its tokens counted; raises DocumentError where there is no text in it."""
    # The true number of tokens, and the map, before any reading is begun; the engine reads these tokens.
    tokens = DocumentTokens(document, encode)
    tokens.ensure(sys.maxsize)
    tokens.require_text()
    workspace.accept(tokens)
