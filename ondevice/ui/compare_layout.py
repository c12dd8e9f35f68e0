"""The tab “Compare”: which components it has. No behaviour; `wiring` adds that."""

from __future__ import annotations

from typing import Any

from ondevice.ui.panels import panel


def compare_parts() -> dict[str, Any]:
    """Lay out the tab inside the current Blocks."""
    return {"compare": panel("compare")}
