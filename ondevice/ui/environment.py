"""The import of Gradio: variables of the process before it, and a private folder for files."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

import psutil

_PREFIX = "ondevice-app-"
# A reverse proxy's path is the one thing that only the surroundings know.
_KEPT = ("GRADIO_ROOT_PATH",)


@contextmanager
def private_folder() -> Iterator[Path]:
    """A folder that only this user may enter; it is removed with all that is in it at the end."""
    _remove_leftovers()
    prefix = f"{_PREFIX}{os.getpid()}-"
    with tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as folder:  # of mode 0700
        yield Path(folder)


def prepare_gradio(folder: Path) -> Path:
    """Set Gradio's variables and import it; returns the folder for uploads that have been taken in.

    Variables from outside are dropped, because some would open the app (a public link, an editor in the browser):
    settings come from the command line alone.
    """
    for name in [name for name in os.environ if name.startswith("GRADIO_") and name not in _KEPT]:
        del os.environ[name]
    received, taken = folder / "received", folder / "documents"
    for path in (received, taken):
        path.mkdir(mode=0o700)
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    os.environ["GRADIO_TEMP_DIR"] = str(received)
    os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
    if "mcp" not in sys.modules:
        sys.modules["mcp"] = None  # type: ignore[assignment]  # it would import that for half a second, for no use here
    try:
        import_module("gradio")
    finally:
        if sys.modules["mcp"] is None:
            del sys.modules["mcp"]
    return taken


def _remove_leftovers() -> None:
    """Documents that a killed app has left."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        pid = folder.name.removeprefix(_PREFIX).partition("-")[0]
        try:
            is_ours = folder.is_dir() and not folder.is_symlink() and folder.stat().st_uid == os.getuid()
        except (OSError, AttributeError):  # gone meanwhile; or a system without user ids
            continue
        if is_ours and pid.isdigit() and not psutil.pid_exists(int(pid)):
            shutil.rmtree(folder, ignore_errors=True)
