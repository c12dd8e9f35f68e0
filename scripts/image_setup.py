"""Sets ondevice up inside an image, over whatever base that has; the Dockerfile runs it with the base's own Python.

usage: image_setup.py packages    a virtual environment with everything but ondevice
       image_setup.py project     ondevice itself, from the folder in which it runs

A base may bring a torch of its own, made for its GPU: that and its Triton stay as they are, and the environment borrows
them. All other packages come from the lock, by hash. PIP_ARGS are more arguments of every installation, TORCH_ARGS of
torch's, where the base has none. Any Python of 3.8 or later can run this far enough to say what is wrong with a base.
"""

from __future__ import annotations

import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import Distribution, distributions
from pathlib import Path

PYTHON, TORCH, TRITON = (3, 11), (2, 7), (3, 3)  # the oldest that ondevice runs with, as in pyproject.toml
VENV = Path("/opt/ondevice/venv")
LOCK, CONSTRAINTS = Path("requirements-image.lock"), Path("constraints.txt")
GPU_ONLY = "bitsandbytes"  # whose wheel for ARM is made for servers and fails on Jetson boards
# A base may point pip at an index or constraints of its own, where the same version is another build with another hash.
OF_THE_BASE = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_CONSTRAINT", "PIP_TRUSTED_HOST")
OTHER_BASES = (
    "Take a base with Python 3.11 or newer: for JetPack 6 dustynv/pytorch:2.7-r36.4.0-cu128-24.04, which has 3.12, or "
    "build one with PYTHON_VERSION=3.11 and jetson-containers. docs/jetson.md says more."
)


class Refused(Exception):
    """A base that cannot carry ondevice, in a sentence."""


@dataclass(frozen=True)
class Base:
    """What an image starts from.

    Attributes:
        python: its version, major and minor number.
        machine: its processors.
        torch: version of its torch; "": it has none.
        cuda: CUDA that this torch was built for; "": none, or no torch.
        triton: version of its Triton; "": it has none.
        wanted_triton: what its torch requires of Triton; "": nothing.
        folders: where its packages lie.
        has_compiler, has_header: a C compiler and Python.h, which Triton needs.
        has_packaged_python: its Python is a package of Debian or Ubuntu.
    """

    python: tuple[int, int]
    machine: str = "x86_64"
    torch: str = ""
    cuda: str = ""
    triton: str = ""
    wanted_triton: str = ""
    folders: tuple[str, ...] = ()
    has_compiler: bool = False
    has_header: bool = False
    has_packaged_python: bool = False


@dataclass(frozen=True)
class Plan:
    """What is to be done with a base.

    Attributes:
        installs_torch: the torch of the constraints; else the base's own is borrowed.
        debian: Debian or Ubuntu packages that Triton lacks.
        notes: sentences for who builds the image.
    """

    installs_torch: bool
    debian: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def look(folders: tuple[str, ...] | None = None) -> Base:
    """The base in which this runs; nothing of it is imported, since a GPU's packages may fail while an image is built.

    Args:
        folders: where its packages lie; found by itself.
    """
    if folders is None:
        folders = tuple(path for path in sys.path if Path(path).name in ("site-packages", "dist-packages"))
    torch, triton = _version("torch", folders), _version("triton", folders)
    return Base(
        python=(sys.version_info[0], sys.version_info[1]),
        machine=platform.machine(),
        torch=torch,
        cuda=_cuda(folders) if torch else "",
        triton=triton or _version("pytorch-triton", folders),
        wanted_triton=_wanted_triton(folders) if torch else "",
        folders=folders,
        has_compiler=any(map(shutil.which, ("cc", "gcc", "clang"))),
        has_header=(Path(sysconfig.get_paths()["include"]) / "Python.h").is_file(),
        has_packaged_python=sysconfig.get_config_var("prefix") == "/usr",
    )


def plan(base: Base) -> Plan:
    """What is to be done.

    Raises:
        Refused: its Python or its torch is too old.
    """
    if base.python < PYTHON:
        found = f"Python {_dotted(base.python)}" + (
            f", for which its torch {base.torch} was built" if base.torch else ""
        )
        raise Refused(f"This base has {found}; ondevice needs Python {_dotted(PYTHON)}. {OTHER_BASES}")
    if not base.torch:
        return Plan(installs_torch=True)
    if _numbers(base.torch) < TORCH:
        raise Refused(f"This base has torch {base.torch}; ondevice needs {_dotted(TORCH)}. Take a newer base.")
    notes = [f"torch {base.torch} of the base stays, built for {f'CUDA {base.cuda}' if base.cuda else 'no GPU'}."]
    if not base.cuda:
        return Plan(installs_torch=False, notes=tuple(notes))
    if not base.triton or _numbers(base.triton) < TRITON:
        found = f"Triton {base.triton}" if base.triton else "no Triton"
        notes.append(f"It has {found}: on the GPU torch's own kernels compute, slower. Triton's begin with 3.3.")
        return Plan(installs_torch=False, notes=tuple(notes))
    notes.append(f"So does its Triton {base.triton}.")
    if base.wanted_triton and not _is_wanted(base.triton, base.wanted_triton):
        notes.append(f"Its torch asks for Triton {base.wanted_triton}, so kernels may fail; torch's take their place.")
    debian = () if base.has_compiler else ("gcc", "libc6-dev")
    if not base.has_header and base.has_packaged_python:
        debian += (f"libpython{_dotted(base.python)}-dev",)
    return Plan(installs_torch=False, debian=debian, notes=tuple(notes))


def entries(lock: str) -> dict[str, str]:
    """The lines of a lock by package."""
    found = re.split(r"^(?=[\w.-]+==)", lock, flags=re.MULTILINE)
    return {entry.partition("==")[0]: entry for entry in found if "==" in entry}


def takes_gpu_packages(cuda: str, machine: str) -> bool:
    """Whether what only a GPU uses is installed."""
    return bool(cuda) and machine == "x86_64"


def packages(base: Base) -> None:
    """Make the environment and install everything but ondevice."""
    todo = plan(base)
    for note in todo.notes:
        print(note, flush=True)
    _run([sys.executable, "-m", "venv", str(VENV)])
    if not todo.installs_torch:
        (own,) = VENV.glob("lib/python*/site-packages")
        (own / "base.pth").write_text("\n".join(base.folders) + "\n", encoding="utf-8")
    _debian(todo.debian)
    locked = entries(LOCK.read_text(encoding="utf-8"))
    of_a_gpu = locked.pop(GPU_ONLY)
    _install_locked(locked.values())
    if todo.installs_torch:
        (pin,) = re.findall(r"^torch==\S+", CONSTRAINTS.read_text(encoding="utf-8"), re.MULTILINE)
        _pip(*shlex.split(os.environ.get("TORCH_ARGS", "")), "-c", str(CONSTRAINTS), pin)
    there = tuple(str(path) for path in VENV.glob("lib/python*/site-packages")) + base.folders
    if takes_gpu_packages(_cuda(there), base.machine):
        _install_locked([of_a_gpu])
    if base.torch and _version("torch", there) != base.torch:
        raise Refused(f"torch {base.torch} of the base gave way to {_version('torch', there)}.")


def project() -> None:
    """Install ondevice out of this folder, with nothing else."""
    _pip("--no-deps", "--no-build-isolation", ".")
    _run([str(VENV / "bin" / "ondevice"), "--version"])
    tried = subprocess.run([str(VENV / "bin" / "python"), "-c", "import torch"], capture_output=True, text=True)
    if tried.returncode:  # libraries of a GPU may come only when a container starts
        print(f"torch cannot be imported while the image is built: {tried.stderr.strip().splitlines()[-1]}", flush=True)


def _install_locked(chosen: Iterable[str]) -> None:
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("".join(chosen))
        file.flush()
        _pip("--require-hashes", "--no-deps", "-r", file.name)


def _pip(*arguments: str) -> None:
    more = shlex.split(os.environ.get("PIP_ARGS", ""))
    _run([str(VENV / "bin" / "python"), "-m", "pip", "install", "--quiet", *more, *arguments])


def _debian(names: tuple[str, ...]) -> None:
    """Install what Triton's compiler lacks; without it torch's kernels compute."""
    if not names:
        return
    if shutil.which("apt-get") is None:
        print(f"Triton lacks {', '.join(names)}, and there is no apt-get: torch's kernels will compute.", flush=True)
        return
    _run(["apt-get", "-qq", "update"])
    _run(["apt-get", "-qq", "install", "-y", "--no-install-recommends", *names])
    shutil.rmtree("/var/lib/apt/lists", ignore_errors=True)


def _run(command: list[str]) -> None:
    kept = {name: value for name, value in os.environ.items() if name not in OF_THE_BASE}
    subprocess.run(command, check=True, env=kept)


def _version(package: str, folders: tuple[str, ...]) -> str:
    found = _distribution(package, folders)
    return found.version if found is not None else ""


def _distribution(package: str, folders: tuple[str, ...]) -> Distribution | None:
    return next(iter(distributions(name=package, path=list(folders))), None)


def _cuda(folders: tuple[str, ...]) -> str:
    """CUDA of the torch that lies there, out of the file in which it says so."""
    for folder in folders:
        file = Path(folder) / "torch" / "version.py"
        if file.is_file():
            found = re.search(r"^cuda\b[^=]*=\s*['\"]([\d.]+)['\"]", file.read_text(encoding="utf-8"), re.MULTILINE)
            return found[1] if found else ""
    return ""


def _wanted_triton(folders: tuple[str, ...]) -> str:
    """As `==3.3.0`."""
    torch = _distribution("torch", folders)
    for requirement in (torch.requires if torch is not None else None) or []:
        found = re.match(r"(?:pytorch-)?triton\s*\(?([=<>~!][^;)\s]*)", requirement)
        if found:
            return found[1]
    return ""


def _is_wanted(version: str, wanted: str) -> bool:
    """Whether a version is what an exact requirement asks for; others are left to whoever made the base."""
    return not wanted.startswith("==") or version.partition("+")[0] == wanted[2:].partition("+")[0]


def _numbers(version: str) -> tuple[int, int]:
    major, minor = re.findall(r"\d+", version)[:2]
    return int(major), int(minor)


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


def main(arguments: list[str]) -> int:
    if arguments not in (["packages"], ["project"]):
        print(__doc__, file=sys.stderr)
        return 2
    try:
        packages(look()) if arguments == ["packages"] else project()
    except Refused as error:
        print(error, file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as error:
        print(f"{shlex.join(map(str, error.cmd))} failed", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
