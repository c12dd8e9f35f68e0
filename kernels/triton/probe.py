"""A trial whether Triton can compile and launch here: it needs a C compiler and Python.h, which many machines lack.

Asked once in a process, with a kernel that adds one, before the first that matters. Where it fails, torch's kernels do
all of the work, and a line on standard error says so.
"""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from functools import cache
from pathlib import Path
from typing import Any

import torch

COMPILERS = ("cc", "gcc", "clang")
_LONGEST = 200  # of an error's text

tl: Any = None  # triton.language, from the first call on; the kernel looks it up here


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
    global tl
    import triton
    import triton.language

    tl = triton.language
    number = torch.zeros(1, dtype=torch.int32, device=device)
    triton.jit(_add_one_kernel)[(1,)](number)
    if int(number) != 1:
        raise RuntimeError("a kernel that adds one did not")


def _add_one_kernel(number_ptr):  # type: ignore[no-untyped-def]  # the argument has the type of the call
    tl.store(number_ptr, tl.load(number_ptr) + 1)
