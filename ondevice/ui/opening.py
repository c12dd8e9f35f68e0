"""From an uploaded file to a document with its card and its cells, and from there to an empty pot for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from ondevice.config import EngineConfig
from ondevice.documents import Document, extract
from ondevice.documents.tokens import DocumentTokens, Encode
from ondevice.engine import Engine, Session
from ondevice.errors import EmptyDocument
from ondevice.ui import render
from ondevice.ui.registry import Registry
from ondevice.ui.render import Patch
from ondevice.ui.room import free_device_memory, require_room
from ondevice.ui.throttle import Throttle
from ondevice.ui.token_map import MapLayout, make_layout
from ondevice.ui.uploads import Upload
from ondevice.ui.workspace import Workspace


def open_upload(workspace: Workspace, upload: Upload, password: str | None, encode: Encode) -> Iterator[Patch]:
    """Extract the text, count its tokens, and put the document into the workspace.

    Stopping leaves the workspace with the document it had.

    Raises:
        DocumentError: as `extract` does, or there is no text in it.
    """
    throttle = Throttle()
    workspace.pages, workspace.opening_name = None, upload.path.name
    steps = extract(upload.path, password=password or None)
    with closing(steps):
        while True:
            try:
                workspace.pages = next(steps)
            except StopIteration as stop:
                document: Document = stop.value
                break
            if throttle.allows():
                yield {"progress": render.progress(workspace), "status": render.status(workspace)}
            if workspace.stop.is_set():
                return
    # The engine tokenises again when it reads. That costs a second for a million tokens, and buys the true number
    # of tokens, and the map, before any work is begun.
    tokens = DocumentTokens(document, encode)
    for _ in tokens.read_pages():
        pass
    layout = layout_of(tokens)
    if not layout.num_tokens:
        raise EmptyDocument(
            "There is no text in this document", where=document.name, fix="Scanned pages need OCR first."
        )
    workspace.accept(document, layout)


def begin_reading(engine: Engine, registry: Registry, workspace: Workspace, config: EngineConfig) -> Session:
    """A new session for the workspace's document, in place of the one before, where there is room for its pot.

    Raises:
        PotError: there is none.
        ConfigError: the settings do not fit the model.
    """
    num_tokens = workspace.layout.num_tokens if workspace.layout is not None else 0
    # Settings that cannot work must not cost the old pot, which has to go before there is room for the new one.
    engine.check(config)
    require_room(engine, config, num_tokens, registry.others(workspace), going=workspace)
    workspace.drop_pot()
    free_device_memory()
    workspace.session = session = engine.session(config)
    return session


def layout_of(tokens: DocumentTokens) -> MapLayout:
    """How a document, all of it tokenised, falls into pages and cells."""
    sizes = []
    for index in range(tokens.num_pages):
        start, stop = tokens.page_tokens(index)
        sizes.append((tokens.page_number(index), stop - start))
    return make_layout(sizes, tokens.document.unit)
