"""Actions of a scan: begin, stop, put away, and save what was found."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ondevice.ui.render import Patch, download
from ondevice.ui.running import Runner
from ondevice.ui.scan_render import scan_panel, to_csv


class ScanActions:
    """The actions of a scan, run by `runner`; `shown` is the id of the document that the page shows, as it says."""

    def __init__(self, runner: Runner) -> None:
        self._runner, self._jobs = runner, runner.jobs

    def run(self, visitor_id: object, question: object, shown: object = None) -> Iterator[Patch]:
        """Ask a question on every chunk of the document."""
        visitor, workspace = self._runner.on_shown(visitor_id, shown, is_open=True)
        yield from self._runner.run(visitor, workspace, self._jobs.scan(workspace, str(question or "")))

    def stop(self, visitor_id: object, shown: object = None) -> Patch:
        """End the scan; what it found stays, and so does all else."""
        visitor, workspace = self._runner.on_any(visitor_id, shown)
        if workspace.scan is not None and workspace.scan.is_running:
            workspace.halt()
        return self._runner.page(visitor)

    def close(self, visitor_id: object, shown: object = None) -> Patch:
        """Put away what a scan that has ended has found."""
        _, workspace = self._runner.on_any(visitor_id, shown)
        if workspace.scan is not None and not workspace.scan.is_running:
            workspace.scan = None
        return {"scan": scan_panel(workspace)}

    def export(self, visitor_id: object, shown: object = None) -> Patch:
        """The findings so far, as a file that the browser makes by itself."""
        _, workspace = self._runner.on_any(visitor_id, shown)
        if workspace.scan is None:
            return {}
        workspace.scan.is_saved = not workspace.scan.is_running
        return download(f"{Path(workspace.name).stem}-findings", "csv", to_csv(workspace.scan))
