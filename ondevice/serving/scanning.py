"""A scan of an open document: the question is asked on every chunk of it, in line for the model like any job."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing

from ondevice.errors import PotError
from ondevice.scan.account import report
from ondevice.scan.scan import ChunkScanned, Scan
from ondevice.serving.job_events import ScanFinished
from ondevice.serving.workspace import Workspace
from ondevice.session.engine import Engine


def scan_document(
    engine: Engine, workspace: Workspace, question: str
) -> Generator[ChunkScanned | ScanFinished, None, None]:
    """Scan the document of a workspace; what it finds is in `workspace.scan`, also where it is stopped.

    Raises:
        PotError: there is no document, or no room.
        ConfigError: the question is too long for the model.
    """
    if workspace.tokens is None:
        raise PotError("There is no document to scan", fix="Open one first.")
    workspace.scan = scan = Scan(engine, workspace.tokens, question)
    with closing(scan.run()) as events:  # type: ignore[type-var]  # it is a generator
        for event in events:
            if isinstance(event, ChunkScanned):
                yield event
            if workspace.stop.is_set():  # maybe before the scan listened, which forgets it when its work begins
                scan.stop()
    yield ScanFinished(report(scan))
