"""A trial whether Triton can compile and launch here: it needs a C compiler and Python.h, which many machines lack.

Asked once in a process, with the smallest kernel, before the first that matters. Where it fails, torch's kernels do
all of the work, and a line on standard error says so.
"""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from functools import cache
from pathlib import Path

import torch

COMPILERS = ("cc", "gcc", "clang")
_LONGEST = 200  # of an error's text


@cache
def works(device: torch.device) -> bool:
    """True if a kernel runs on that GPU; the first time that one does not, a notice is printed."""
    try:
        _launch(device)
    except Exception as error:  # of the compiler, the linker, the driver or the disk: none is a reason to fail
        print(f"Triton cannot be used, and torch's kernels compute instead, slower: {reason(error)}", file=sys.stderr)
        return False
    return True


def reason(error: Exception) -> str:
    """The missing part, or else the first line of what went wrong."""
    missing = lacking()
    if missing:
        return f"{' and '.join(missing)} missing (on Debian and Ubuntu: gcc and python3-dev)."
    text = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {text[:_LONGEST]}" if text else type(error).__name__


def lacking() -> list[str]:
    """The parts that Triton needs to build a kernel's launcher, and that are not here."""
    missing = []
    if not os.environ.get("CC") and not any(map(shutil.which, COMPILERS)):
        missing.append("a C compiler")
    if not (Path(sysconfig.get_paths()["include"]) / "Python.h").is_file():
        missing.append("Python.h")
    return missing


def _launch(device: torch.device) -> None:
    from ondevice.kernels.triton.gated import multiply_gated

    if not 0.73 < float(multiply_gated(torch.ones(1, 2, device=device), is_silu=True)) < 0.74:
        raise RuntimeError("a kernel that gives 0.731 did not")
