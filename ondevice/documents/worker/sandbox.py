"""The sandbox of the worker, entered before it opens a file: memory, time, files, processes, network.

The limits of the kernel hold for C code as well. The audit hook only stops Python code; it is a second line against
parsers that would fetch or start something, not a wall against a parser that has been taken over.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any

from ondevice.documents.worker.limits import Limits

_MAX_OPEN_FILES = 64
_FORBIDDEN = ("socket.", "subprocess.", "os.system", "os.exec", "os.fork", "os.posix_spawn", "os.spawn", "pty.spawn")


def enter(limits: Limits) -> None:
    """Apply all limits to this process, for good."""
    # Files may not grow (RLIMIT_FSIZE below), so compiled modules cannot be written either.
    sys.dont_write_bytecode = True
    _limit_resources(limits)
    sys.addaudithook(_refuse)


def _limit_resources(limits: Limits) -> None:
    try:
        import resource
    except ImportError:  # Windows: the parent's clock is all there is
        return
    wanted = {
        resource.RLIMIT_AS: limits.memory_bytes,
        resource.RLIMIT_CPU: limits.cpu_seconds,
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_NOFILE: _MAX_OPEN_FILES,
        resource.RLIMIT_CORE: 0,  # a core file would hold the document's text
    }
    if hasattr(resource, "RLIMIT_NPROC"):
        wanted[resource.RLIMIT_NPROC] = 0
    for kind, soft in wanted.items():
        # At the soft limit of time comes SIGXCPU, which tells the parent what happened; at the hard one only SIGKILL.
        hard = soft + (kind == resource.RLIMIT_CPU)
        _, highest = resource.getrlimit(kind)
        if highest != resource.RLIM_INFINITY:
            soft, hard = min(soft, highest), min(hard, highest)
        # macOS refuses some of them; the others still hold.
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(kind, (soft, hard))


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    is_opening = event == "open" and len(arguments) > 2 and isinstance(arguments[2], int)
    is_for_writing = is_opening and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
    if event.startswith(_FORBIDDEN) or is_for_writing:
        raise PermissionError(f"a document reader may not use {event}")
