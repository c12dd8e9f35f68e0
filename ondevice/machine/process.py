"""Main memory of this process: its peak, the peak since a moment of our choice, and what becomes of freed memory."""

from __future__ import annotations

import ctypes
import gc
import mmap
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

_STATUS = Path("/proc/self/status")
_MAPS = Path("/proc/self/maps")
# Settings of mallopt: M_MMAP_THRESHOLD (-3); and what glibc itself comes to once large pieces were freed, with
# M_TRIM_THRESHOLD (-1) twice that.
_MAP_FROM_1_MB = (-3, 1 << 20)
_MAP_FROM_32_MB = ((-3, 32 << 20), (-1, 64 << 20))


def peak_rss_bytes() -> int:
    """The most resident memory so far; on Linux since it was last reset, elsewhere since the start."""
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


def resident_bytes() -> int:
    """Main memory that this process has now, its pages of mapped files among it."""
    return int(psutil.Process().memory_info().rss)


def forget_mapped(address: int, num_bytes: int) -> bool:
    """Give back the pages of a mapped file that will not be read again; if they are, they come from the file.

    Only whole pages, and none of memory that is in no file: that would lose its contents.

    Returns:
        whether any were given back.
    """
    first, end = -(-address // mmap.PAGESIZE) * mmap.PAGESIZE, (address + num_bytes) // mmap.PAGESIZE * mmap.PAGESIZE
    if first >= end or not _is_in_file(first, end) or (advise := glibc("madvise")) is None:
        return False
    return bool(advise(ctypes.c_void_p(first), ctypes.c_size_t(end - first), mmap.MADV_DONTNEED) == 0)


def _is_in_file(first: int, end: int) -> bool:
    """True if all of this range is one mapping of a file."""
    try:
        lines = _MAPS.read_text().splitlines()
    except OSError:
        return False
    for line in lines:
        span, _, _, _, inode, *_ = line.split(maxsplit=5)
        low, high = (int(part, 16) for part in span.split("-"))
        if low <= first and end <= high:
            return inode != "0"
    return False


def return_free_memory() -> None:
    """Give back to the system what the process has freed, where the C library can, so that a peak is of use alone."""
    gc.collect()
    trim_heap()


def trim_heap() -> None:
    """Give back what lies free in the C library's heap: in pieces that may be of no use to the next large tensor."""
    if (trim := glibc("malloc_trim")) is not None:
        trim(0)


@contextmanager
def large_pieces_mapped() -> Iterator[None]:
    """Take every piece from 1 MB on from the system by itself meanwhile, so that its memory goes back once it is freed.

    Otherwise a loader that moves weights about leaves a heap behind that is mostly holes. They count for nothing at
    first, but what comes later fills one after the other: a third of what reading with a model of 0.5B took.
    """
    option = glibc("mallopt")
    if option is None:
        yield
        return
    option(*_MAP_FROM_1_MB)
    try:
        yield
    finally:
        for setting in _MAP_FROM_32_MB:
            option(*setting)


def glibc(name: str) -> Callable[..., int] | None:
    """A function of the C library that glibc has and others have not."""
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None
