"""The user's cache folder, and folders in it that are either complete or not there.

A folder is built beside its place, written through to the disk, listed in a manifest and renamed.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from ondevice.errors import ModelError
from ondevice.files import READABLE, replacing, sync_file, sync_folder
from ondevice.model.loading.checksums import file_sha256, sample_sha256
from ondevice.model.loading.progress import Progress

_MANIFEST, _TIME, _CHANGE, _START = "manifest.json", "checked_mtime", "checked_ctime", "checked_start"
_START_ID = Path("/proc/sys/kernel/random/boot_id")
_ELSEWHERE = "Free some space there, or name another folder with the environment variable ONDEVICE_CACHE."


def cache_dir() -> Path:
    """The folder for converted models: `$ONDEVICE_CACHE`, else where this system keeps caches. Created if missing.

    Raises:
        ModelError: it cannot be created.
    """
    named = os.environ.get("ONDEVICE_CACHE")
    if not named:
        from platformdirs import user_cache_dir

        named = user_cache_dir("ondevice")
    folder = Path(named).expanduser()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ModelError(
            f"The cache folder cannot be created: {error.strerror}",
            where=str(folder),
            fix="Name another one with the environment variable ONDEVICE_CACHE.",
        ) from error
    return folder


def models_dir() -> Path | None:
    """`$ONDEVICE_MODELS`: a further place with models, looked at before the cache and never written to; often an image.

    It is laid out as the cache folder, and what the hub keeps stands in `hub` there.
    """
    named = os.environ.get("ONDEVICE_MODELS", "").strip()
    return Path(named).expanduser() if named else None


def intact_folder(name: str, *, verify: bool = False, is_used: bool = False) -> Path | None:
    """The complete folder of that name, of the read-only place or else of the cache; None: there is none.

    Args:
        verify, is_used: as for `is_intact`.
    """
    given = models_dir()
    for place in (given, cache_dir()) if given is not None else (cache_dir(),):
        if is_intact(place / name, verify=verify, is_used=is_used):
            return place / name
    return None


def require_readable(name: str, title: str) -> None:
    """Tell a folder of that name that is here, and may not be read, from none.

    Raises:
        ModelError: this user is refused one of its files.
    """
    for place in filter(None, (models_dir(), cache_dir())):
        try:
            for path in (place / name, *sorted((place / name).iterdir())):
                if path.is_file():
                    path.open("rb").close()
        except PermissionError as error:
            raise ModelError(
                f"{title} is on this machine, and this user may not read it",
                where=str(error.filename or place / name),
                fix="Let its owner change that (chmod -R a+rX), or name another folder with ONDEVICE_CACHE.",
            ) from error
        except OSError:  # it is not there, or damaged otherwise
            continue


def is_intact(folder: Path, *, verify: bool = False, is_used: bool = False) -> bool:
    """True if every file of the manifest is there: by its size, time and samples, or by every byte.

    Every byte of a file is read if `verify`, and where its time is not that of the last such check: somebody has
    written to it, or copied it. What is found right then is noted in the manifest, if that can be written; the time of
    its last change counts then, too, which nobody sets back as they can the other.

    Args:
        verify: read every byte.
        is_used: the files are about to be loaded: read every byte where the machine was started since that was done,
            for a crash of the system may have left something else of them than was written.
    """
    try:
        manifest: dict[str, Any] = json.loads((folder / _MANIFEST).read_bytes())
        files: dict[str, dict[str, Any]] = manifest["files"]
        # Where nothing can be noted it would be done at each start of the program.
        is_due = is_used and manifest.get(_START) != _start() and os.access(folder, os.W_OK)
        verify = verify or is_due
        if not files or not all(_matches(folder / name, entry, verify) for name, entry in files.items()):
            return False
        noted = {name: entry | _times_of(folder / name) for name, entry in files.items()}
        new = {**manifest, "files": noted} | ({_START: _start()} if verify else {})
        if new != manifest:
            with suppress(OSError), replacing(folder / _MANIFEST, mode=READABLE) as temporary:
                temporary.write_text(json.dumps(new, indent=1), encoding="utf-8")
        return True
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def source_of(folder: Path) -> dict[str, str]:
    """The source of its files, as `built_beside` was told; nothing if that is not known."""
    try:
        return dict(json.loads((folder / _MANIFEST).read_bytes())["source"])
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _matches(path: Path, entry: dict[str, Any], verify: bool) -> bool:
    if path.stat().st_size != entry["bytes"] or sample_sha256(path) != entry["sample_sha256"]:
        return False
    times = _times_of(path)
    if not os.access(path.parent, os.W_OK):  # as in images, whose files have new times of change on each machine
        del times[_CHANGE]
    is_as_checked = not verify and times.items() <= entry.items()
    return is_as_checked or file_sha256(path) == entry["sha256"]


def _start() -> str:
    """The boot id of this machine."""
    try:
        return _START_ID.read_text().strip()
    except OSError:  # not on Linux
        import psutil

        return str(round(psutil.boot_time() / 60))


def _times_of(path: Path) -> dict[str, int]:
    """When it was last written, in seconds: archives and images keep no more of it; and when it was last changed."""
    about = path.stat()
    return {_TIME: int(about.st_mtime), _CHANGE: about.st_ctime_ns}


@contextmanager
def writing(title: str, cache: Path) -> Iterator[None]:
    """Turn what keeps the block from writing a model into the cache into a ModelError."""
    try:
        yield
    except OSError as error:
        raise ModelError(
            f"{title} cannot be written: {error.strerror or error}", where=str(cache), fix=_ELSEWHERE
        ) from error


def require_room(title: str, cache: Path, needed: int) -> None:
    """Refuse what would not fit on the disk.

    Raises:
        ModelError: fewer bytes than `needed` are free there.
    """
    free = shutil.disk_usage(cache).free
    if free < needed:
        raise ModelError(
            f"{title} needs {needed // 10**6} MB of disk, and {free // 10**6} MB are free",
            where=str(cache),
            fix=_ELSEWHERE,
        )


def folder_bytes(folder: Path) -> int:
    """Size of all files in a folder; 0 where there is none."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def remove_folders(*folders: Path) -> int:
    """Delete folders; returns the bytes that are free now."""
    freed = sum(map(folder_bytes, folders))
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
    return freed


@contextmanager
def held(lock_file: Path, waiting: str, on_progress: Progress) -> Iterator[None]:
    """Hold a lock between processes while the block runs; `waiting` is shown where another one has it."""
    lock = FileLock(lock_file)
    try:
        taken = lock.acquire(timeout=0)
    except Timeout:
        on_progress(waiting, None)
        taken = lock.acquire()
    with taken:
        yield


@contextmanager
def built_beside(folder: Path, *, source: dict[str, str]) -> Iterator[Path]:
    """A new folder to fill, which takes the place of `folder` when the block ends, and vanishes when it fails.

    The caller holds a lock: two builders of one folder would clear each other's work.

    Args:
        source: noted in the manifest: what the files were made from.
    """
    partial = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        yield partial
        _write_manifest(partial, source)
        for path in partial.iterdir():  # on the disk before the rename makes them count
            sync_file(path)
        sync_folder(partial)
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(partial, folder)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def _write_manifest(folder: Path, source: dict[str, str]) -> None:
    files = {
        path.name: {
            "bytes": path.stat().st_size,
            "sha256": file_sha256(path),
            "sample_sha256": sample_sha256(path),
        }
        | _times_of(path)
        for path in sorted(folder.iterdir())
    }
    manifest = {"source": source, "files": files, _START: _start()}
    (folder / _MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
