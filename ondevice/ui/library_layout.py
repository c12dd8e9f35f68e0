"""The tab “Library”: which components it has. No behaviour; `wiring` adds that."""

from __future__ import annotations

from typing import Any

from ondevice.ui.panels import panel


def library_parts() -> dict[str, Any]:
    """Lay out the tab inside the current Blocks."""
    return {"library": panel("library", events=("open_entry", "rename_entry", "delete_entry", "forget_all"))}
