"""kvpress as a contender: it reads a text whole, then keeps a part of the cache.

It takes an older transformers than this program, so that it works in an environment of its own, which is made at its
first use; torch and whatever else suits it there comes from this one.
"""

from __future__ import annotations

import subprocess
import sysconfig
import venv
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ondevice.errors import ConfigError
from ondevice.model.loading.cache_folder import cache_dir
from ondevice_bench.speed.other_interpreter import by_program, end_of

NAME = "kvpress, expected attention"
_PACKAGE = "kvpress==0.5.5"
_READY = "ready"  # a file in the environment, once all is installed
_WORK = Path(__file__).with_name("kv_press_work.py")


def environment() -> Path:
    """The Python of the environment, which is made where it is not there yet: some 150 MB are fetched.

    Raises:
        ConfigError: its packages cannot be had.
    """
    folder = cache_dir() / "peers" / _PACKAGE
    python = folder / "bin" / "python"
    if (folder / _READY).is_file():
        return python
    venv.create(folder, clear=True, with_pip=True)
    packages = Path(sysconfig.get_path("purelib", "venv", {"base": str(folder)}))
    (packages / "zz_ours.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    done = subprocess.run(
        [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet", _PACKAGE],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ConfigError(
            f"{_PACKAGE} cannot be installed: {end_of(done.stderr)}",
            where=str(folder),
            fix="It needs a package index; the other contenders do without.",
        )
    (folder / _READY).touch()
    return python


def work(task: Mapping[str, Any], python: Callable[[], Path] = environment) -> dict[str, Any]:
    """Do a task in a process of its own.

    Args:
        task: as `kv_press_work` takes it.
        python: gives the interpreter.

    Raises:
        ConfigError: as `environment`.
        ModelError: it cannot do the task.
    """
    return by_program("kvpress", python(), _WORK, task)[0]
