"""Ray for as long as a block runs: one of our own on this machine alone, or the cluster that a user names."""

from __future__ import annotations

import importlib.util
import logging
import os
import secrets
import shutil
import socket
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from ondevice.errors import ConfigError
from ondevice.extras import install_extra

OWN = ("", "local")  # addresses of a Ray of our own
_LOOPBACK = "127.0.0.1"
_TOKEN = secrets.token_hex(
    32
)  # of a Ray of our own, which would write one into the home folder; it knows but one a process
LOOSE_CPUS = 2  # beside those of engines: reading tables, parsing and writing must never wait for an engine to end
_ANSWER_SECONDS = 10.0
_STORE_BYTES = 200_000_000  # of the documents on their way from parsers to engines; more of them go to the disk


@dataclass(frozen=True, slots=True)
class Share:
    """The part of a cluster that engines take.

    Attributes:
        engines: number of them; 0: as many as there is room for.
        cpus: of each; 0: on this machine as many as it has for all, elsewhere 1.
        gpus: of each, also less than one; None: one where there are any, on this machine its share.
        store_bytes: of the object store of a Ray of our own.
    """

    engines: int = 0
    cpus: int = 0
    gpus: float | None = None
    store_bytes: int = _STORE_BYTES


def require_packages() -> None:
    """Refuse to go on without the packages of the extra; raises ConfigError."""
    for name in ("fsspec", "pyarrow", "ray"):  # not imported: Ray reads its environment then
        if importlib.util.find_spec(name) is None:
            raise ConfigError(f"The package `{name}` is not installed", fix=install_extra("scale"))


@contextmanager
def running(address: str, share: Share) -> Iterator[Share]:
    """A Ray to work on while the block runs, and the share of it that engines take, with all numbers settled.

    Ray reports no usage, has no dashboard, and without an address listens on the loopback alone.

    Args:
        address: as `ray.init` takes it (`auto`, `host:port`, `ray://host:port`); "" or `local`: one of our own.

    Raises:
        ConfigError: the extra is not installed, nothing answers at the address, or the share is larger than all.
    """
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ.setdefault("RAY_DATA_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    if address in OWN:
        # Read when Ray is imported: a node of its own then lives on 127.0.0.1, as it does on other systems than Linux.
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
        os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": _TOKEN}
        # Ray's workers stand behind everything else that runs; where cores are shared, two threads then wait for each
        # other at every product, and a batch takes a fifth longer than a loop.
        os.environ.setdefault("RAY_worker_niceness", "0")
    require_packages()
    with _quiet(), _own(share) if address in OWN else _connected(address, share) as settled:
        yield settled


@contextmanager
def _own(share: Share) -> Iterator[Share]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    engines = share.engines or (1 if share.cpus == 0 else max(cores // share.cpus, 1))
    num_gpus = torch.cuda.device_count()
    gpus = min(num_gpus / engines, 1) if share.gpus is None else share.gpus
    settled = Share(engines, share.cpus or max(cores // engines, 1), gpus, share.store_bytes)
    import ray

    folder = tempfile.mkdtemp(prefix="ondevice-ray-")  # documents pass through it: it is private, and goes
    try:
        ray.init(
            address="local",
            num_cpus=settled.engines * settled.cpus + LOOSE_CPUS,
            num_gpus=num_gpus,
            include_dashboard=False,
            object_store_memory=share.store_bytes,
            log_to_driver=False,
            logging_level=logging.ERROR,
            _temp_dir=folder,
            _node_ip_address=_LOOPBACK,
        )
        assert ray.util.get_node_ip_address() == _LOOPBACK, "Ray was imported before this was called"
        yield settled
    finally:
        ray.shutdown()
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _connected(address: str, share: Share) -> Iterator[Share]:
    _require_listening(address)
    import ray

    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, ValueError, RuntimeError, TimeoutError, ImportError) as error:
        raise _unreachable(address, error) from None
    try:
        yield _fitted(share, ray.cluster_resources())
    finally:
        ray.shutdown()


def _require_listening(address: str) -> None:
    """Refuse an address at which nothing listens, for which Ray would wait for minutes; raises ConfigError."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():
        try:
            socket.create_connection((host, int(port)), _ANSWER_SECONDS).close()
        except (OSError, OverflowError) as error:
            raise _unreachable(address, error) from None


def _unreachable(address: str, error: Exception) -> ConfigError:
    what = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
    return ConfigError(f"There is no Ray to work on: {what}", where=address, fix="Start one with `ray start --head`.")


def _fitted(share: Share, there: dict[str, float]) -> Share:
    """The share in what a cluster has; raises ConfigError."""
    cpus, gpus = share.cpus or 1, share.gpus
    if gpus is None:
        gpus = 1.0 if there.get("GPU") else 0.0
    room = int((there.get("CPU", 0) - LOOSE_CPUS) // cpus)
    if gpus:
        room = min(room, int(there.get("GPU", 0) / gpus + 1e-9))
    engines = share.engines or room
    if not 0 < engines <= room:
        raise ConfigError(
            f"The cluster has {there.get('CPU', 0):g} CPUs and {there.get('GPU', 0):g} GPUs: room for {max(room, 0)} "
            f"engines of {cpus} CPUs and {gpus:g} GPUs, {LOOSE_CPUS} CPUs being needed beside them",
            fix="Lower --engines, --cpus-per-engine or --gpus-per-engine, or add machines.",
        )
    return Share(engines, cpus, gpus, share.store_bytes)


@contextmanager
def _quiet() -> Iterator[None]:
    """Ray says what went wrong in the errors that it raises; all else that it tells is for those who work on Ray."""
    import ray.data  # noqa: F401 - it sets levels of its own

    loggers = [logging.getLogger(name) for name in ("ray", "ray.data")]
    levels = [one.level for one in loggers]
    for one in loggers:
        one.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for one, level in zip(loggers, levels, strict=True):
            one.setLevel(level)


def cause_of(error: BaseException) -> BaseException:
    """The error that a worker raised, out of the one that Ray made of it."""
    seen: Any = error
    while (inner := getattr(seen, "cause", None) or seen.__cause__) is not None:
        seen = inner
    return seen
