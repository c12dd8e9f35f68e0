"""From an uploaded file to a document in its workspace, with its card and the cells of its map."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import closing

from ondevice.documents import Document, extract
from ondevice.documents.tokens import DocumentTokens, Encode
from ondevice.events import PagesExtracted
from ondevice.serving.uploads import Upload
from ondevice.serving.workspace import Workspace


def extracted(
    workspace: Workspace, upload: Upload, password: str | None
) -> Generator[PagesExtracted, None, Document | None]:
    """Extract the text of a file; returns the document, None if the workspace was stopped. Raises as `extract`."""
    workspace.pages, workspace.opening_name = None, upload.path.name
    with closing(extract(upload.path, password=password)) as steps:
        while True:
            try:
                workspace.pages = next(steps)
            except StopIteration as stop:
                document: Document = stop.value
                return document
            yield workspace.pages
            if workspace.stop.is_set():
                return None


def take_in(workspace: Workspace, document: Document, encode: Encode) -> None:
    """Put a document into the workspace, its tokens counted.

    Raises:
        DocumentError: there is no text in it, or no room for it; the workspace keeps the document that it had.
    """
    # The true number of tokens, and the map, before any reading is begun; the engine reads these tokens.
    tokens = DocumentTokens(document, encode)
    tokens.ensure(sys.maxsize)
    tokens.require_text()
    workspace.accept(tokens)
