"""The peak of resident memory, begun again for one measurement."""

from __future__ import annotations

from pathlib import Path

_CLEAR = Path("/proc/self/clear_refs")


def reset_peak_rss() -> bool:
    """Let the peak begin again from the memory in use now; False where the system does not offer it."""
    try:
        _CLEAR.write_text("5")
    except OSError:
        return False
    return True
