"""`ondevice fetch`: bring the default model here and check every byte of it, so that all else works offline."""

from __future__ import annotations

from ondevice.cli.progress import ProgressDisplay
from ondevice.cli.terminal import err, errors_shown, say


def fetch() -> None:
    """Fetch and check the default model; later starts need no network."""
    with errors_shown(as_json=False), ProgressDisplay(err()) as display:
        from ondevice.model.loading.embedded import NAME, ensure_embedded

        folder = ensure_embedded(display.stage, verify=True)
        display.clear()
        say(f"{NAME} is complete, in {folder}")
