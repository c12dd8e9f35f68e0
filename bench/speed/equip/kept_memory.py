"""Freed memory that stays with the process, so that copies are measured without the mapping of their memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ondevice.machine.process import glibc, return_free_memory

# Settings of mallopt: M_TRIM_THRESHOLD (-1) never, M_MMAP_MAX (-4) none; and the values that glibc begins with.
_KEEP = ((-1, -1), (-4, 0))
_RETURN = ((-1, 128 * 1024), (-4, 65_536))


@contextmanager
def kept_memory() -> Iterator[bool]:
    """Let freed memory serve the next tensors instead of going back to the system; False if that is not offered.

    As usual a large tensor is mapped again every time, and its first touch costs more than a copy of it.
    """
    option = glibc("mallopt")
    if option is None:
        yield False
        return
    return_free_memory()
    try:
        yield all(option(*setting) for setting in _KEEP)
    finally:
        for setting in _RETURN:
            option(*setting)
        return_free_memory()
