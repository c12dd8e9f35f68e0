"""Main memory of this process: now, at its peak, and the peak since a moment of our choice."""

from __future__ import annotations

import ctypes
import gc
import sys
from pathlib import Path

import psutil

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")


def peak_rss_bytes() -> int:
    """The most resident memory so far; on Linux since the last `reset_peak_rss`, elsewhere since the start."""
    try:
        for line in _STATUS.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    info = psutil.Process().memory_info()
    if sys.platform == "win32":
        return int(info.peak_wset)
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def reset_peak_rss() -> bool:
    """Let the peak begin anew from the memory in use now; False where the system does not offer it."""
    try:
        _CLEAR.write_text("5")
    except OSError:
        return False
    return True


def return_free_memory() -> None:
    """Give back to the system what the process has freed, where the C library can, so that a peak is of use alone."""
    gc.collect()
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it, musl does not
        if trim is not None:
            trim(0)
