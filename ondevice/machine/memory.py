"""Free memory and what fits into it: the one place that is asked before anything large is taken."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ondevice.errors import OutOfMemory

if TYPE_CHECKING:
    import torch

_NO_LIMIT = 1 << 60
_SAYINGS = (  # of torch and its libraries; the last is oneDNN's, which says no more
    "out of memory", "allocate memory", "not enough memory", "alloc_failed", "bad_alloc", "could not create a primitive"
)  # fmt: skip
_SHARE = 0.9  # of the free memory; the rest is for forward passes, and for what other programs take meanwhile


def free_memory_bytes(device: torch.device | None = None) -> int:
    """Memory that could be taken on `device` now; None: in the main memory, or in what a container may have of it."""
    import psutil  # here, because the parser of documents loads nothing that it does not need

    limits = [int(psutil.virtual_memory().available), _cgroup_free_bytes(), _address_free_bytes()]
    available = min(limit for limit in limits if limit is not None)
    if device is None or device.type != "cuda":
        return available
    import torch

    free, _ = torch.cuda.mem_get_info(device)
    free += torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(
        device
    )  # torch holds it, and nobody uses it
    # Boards that share memory between CPU and GPU report file caches as used; the system would give them up.
    return max(int(free), available) if shares_memory(device) else int(free)


def total_memory_bytes() -> int:
    """The main memory, or what a container may have of it."""
    import psutil

    return min([int(psutil.virtual_memory().total), *_cgroup_limits()])


def shares_memory(device: torch.device) -> bool:
    """True if what is taken on `device` is taken from the main memory: a CPU, and boards with one memory for both."""
    if device.type != "cuda":
        return True
    import torch

    try:
        return bool(getattr(torch.cuda.get_device_properties(device), "is_integrated", False))
    except (AssertionError, RuntimeError):  # this machine has no such device
        return False


def _cgroup_free_bytes(root: Path = Path("/")) -> int | None:
    """Bytes that the control groups of this process leave it, which `psutil` does not see; None: they set no limit.

    Every group up to the first counts, since each may have a limit of its own. File caches that a group would give up
    are free.

    Args:
        root: where `proc` and `sys` are.
    """
    free = [left for group, files in _cgroups(root) if (left := _group_free_bytes(group, *files)) is not None]
    return min(free, default=None)


def _cgroup_limits(root: Path = Path("/")) -> list[int]:
    """The limits of these groups, those that there are."""
    limits = [_group_limit(group / limit_file) for group, (limit_file, *_) in _cgroups(root)]
    return [limit for limit in limits if limit is not None]


def _cgroups(root: Path) -> Iterator[tuple[Path, tuple[str, str, str]]]:
    """The folders of these groups, with the names of limit, usage and caches in them; none where it is not Linux."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, name = line.split(":", 2)
        if controllers == "":
            folder, files = root / "sys/fs/cgroup", ("memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            folder = root / "sys/fs/cgroup/memory"
            files = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        else:
            continue
        # Inside a container the name may be that of the host, and the files lie at the top.
        for group in [folder, *(folder.joinpath(*parts) for parts in _beginnings(name))]:
            yield group, files


def _address_free_bytes() -> int | None:
    """Bytes that a limit on the addresses of this process (`ulimit -v`) leaves it; None: it has none."""
    try:
        import resource
    except ModuleNotFoundError:  # not Unix
        return None
    import psutil

    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if limit == resource.RLIM_INFINITY else max(limit - int(psutil.Process().memory_info().vms), 0)


def _beginnings(name: str) -> list[tuple[str, ...]]:
    parts = tuple(part for part in name.split("/") if part not in ("", "."))
    return [] if ".." in parts else [parts[: i + 1] for i in range(len(parts))]


def _group_free_bytes(group: Path, limit_file: str, usage_file: str, cache_key: str) -> int | None:
    """Bytes that one group leaves; None where it sets no limit, or is not there."""
    limit = _group_limit(group / limit_file)
    try:
        usage = int((group / usage_file).read_text())
        counts = dict(line.split(maxsplit=1) for line in (group / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):
        return None
    return None if limit is None else max(limit - usage + int(counts.get(cache_key, 0)), 0)


def _group_limit(file: Path) -> int | None:
    try:
        limit = int(file.read_text())
    except (OSError, ValueError):  # "max" is no number, and no limit
        return None
    return limit if limit < _NO_LIMIT else None  # the largest number of pages is no limit of the first version


def usable_bytes(free_bytes: int) -> int:
    """Bytes of the free memory that a pot, a host tier or a cache may take."""
    return int(_SHARE * max(free_bytes, 0))


def document_share(device: torch.device, total_bytes: int | None = None) -> int:
    """Bytes that a document takes at most by default, of all memory that `device` computes in; None: asks for that."""
    import torch

    if total_bytes is None:
        own = None if shares_memory(device) else torch.cuda.get_device_properties(device)
        total_bytes = total_memory_bytes() if own is None else int(own.total_memory)
    return min(max(total_bytes // 10, 256 * 10**6), 2 * 10**9)


def ran_out(error: BaseException) -> bool:
    """True if an error says that there was no memory left: torch has no type of its own for that on a CPU."""
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        return True
    return isinstance(error, RuntimeError) and any(saying in str(error).lower() for saying in _SAYINGS)


@contextmanager
def memory_watched(what: str, device: torch.device | None = None) -> Iterator[None]:
    """Say it where the memory runs out in the block.

    Args:
        what: is going on in it, as "reading".
        device: where the model computes; None: the main memory is told of.

    Raises:
        OutOfMemory: it did.
    """
    try:
        yield
    except Exception as error:
        if not ran_out(error):
            raise
        free = free_memory_bytes(device) / 1e9
        raise OutOfMemory(
            f"The memory ran out while {what}; {free:.1f} GB are free now",
            where=str(device or ""),
            fix="Close other programs and go on, or take a smaller {engine.memory} or {pot.capacity}.",
        ) from error
