"""The state of a scan of an open document. State only."""

from __future__ import annotations

from dataclasses import dataclass

from ondevice.scan.scan import Scan


@dataclass(slots=True)
class Scanning:
    """The last scan of a document, or the one that runs.

    Attributes:
        scan: with what it found so far.
        seconds: that it took so far.
        is_running: whether it goes on.
    """

    scan: Scan
    seconds: float = 0.0
    is_running: bool = True

    def stop(self) -> None:
        """Ask it to end within one layer of the model."""
        self.scan.stop()
