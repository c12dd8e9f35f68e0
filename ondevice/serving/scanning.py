"""A scan of an open document: the question is asked on every chunk of it, in line for the model like any job."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import closing

from ondevice.errors import PotError
from ondevice.scan.account import report
from ondevice.scan.scan import ChunkScanned, Scan
from ondevice.serving.job_events import ScanFinished
from ondevice.serving.scan_state import Scanning
from ondevice.serving.workspace import Workspace
from ondevice.session.engine import Engine


def scan_document(
    engine: Engine, workspace: Workspace, question: str
) -> Generator[ChunkScanned | ScanFinished, None, None]:
    """Scan the document of a workspace; what it finds is in `workspace.scanning`, also where it is stopped.

    Raises:
        PotError: there is no document, or no room.
        ConfigError: the question is too long for the model.
    """
    document = workspace.tokens or workspace.document
    if document is None:
        raise PotError("There is no document to scan", fix="Open one first.")
    scan, began = Scan(engine, document, question), time.perf_counter()
    workspace.scanning = scanning = Scanning(scan)
    try:
        with closing(scan.run()) as events:  # type: ignore[type-var]  # it is a generator
            for event in events:
                scanning.seconds = time.perf_counter() - began
                if isinstance(event, ChunkScanned):
                    yield event
                if workspace.stop.is_set():  # maybe before the scan listened, which forgets it when its work begins
                    scan.stop()
    finally:
        scanning.is_running = False
    yield ScanFinished(report(scan, scanning.seconds))
