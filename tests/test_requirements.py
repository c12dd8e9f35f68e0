"""The pins go together with what torch itself requires, which differs from build to build."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
# What torch 2.13.0 on PyPI requires on Linux beside what every build does: CUDA, and one version of Triton.
CUDA = {"cuda-toolkit": "13.0.3", "cuda-bindings": "13.0.3", "nvidia-cudnn-cu13": "9.20.0.48", "triton": "3.7.1"}
EVERY = ["filelock", "typing-extensions>=4.10.0", "setuptools>=77.0.3", "sympy>=1.13.3", "networkx>=2.5.1", "jinja2",
         "fsspec>=0.8.5"]  # fmt: skip
TRITONS = ("3.4.0", "3.7.1", "3.9.0")


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return dict(line.split("==") for line in lines if line and not line.startswith("#"))


def wheel(folder: Path, name: str, version: str, requires: list[str], extras: set[str] = frozenset()) -> None:
    """A wheel that holds nothing and requires what it is said to."""
    tag = f"{name.replace('-', '_')}-{version}"
    metadata = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}"]
    metadata += [f"Provides-Extra: {extra}" for extra in sorted(extras)]
    metadata += [f"Requires-Dist: {text}" for text in requires]
    with zipfile.ZipFile(folder / f"{tag}-py3-none-any.whl", "w") as archive:
        archive.writestr(f"{tag}.dist-info/METADATA", "\n".join(metadata) + "\n")
        archive.writestr(f"{tag}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{tag}.dist-info/RECORD", "")


def resolve(index: Path, *requirements: str, constraints: bool = True) -> subprocess.CompletedProcess[str]:
    """Versions that `pip install` would take out of a folder of wheels."""
    command = [sys.executable, "-m", "pip", "--isolated", "install", "--dry-run", "--ignore-installed", "--no-index"]
    command += ["--find-links", str(index), "--disable-pip-version-check"]
    command += ["-c", str(ROOT / "constraints.txt")] if constraints else []
    return subprocess.run([*command, *requirements], capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("build", ["cuda", "cpu"])
def test_pins_go_with_what_torch_requires(tmp_path: Path, build: str) -> None:
    pytest.importorskip("pip", reason="pip is not installed here")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    for name, version in pins().items():
        if name != "torch":
            wheel(tmp_path, name, version, [], {"crypto"})
    for version in TRITONS:
        wheel(tmp_path, "triton", version, [])
    cuda = CUDA if build == "cuda" else {}
    for name, version in cuda.items():
        if name != "triton":
            wheel(tmp_path, name, version, [])
    wheel(tmp_path, "torch", pins()["torch"], [*EVERY, *(f"{name}=={version}" for name, version in cuda.items())])

    wanted = [f"torch=={pins()['torch']}", *project["dependencies"], *extras["dev"], *extras["gpu"]]
    done = resolve(tmp_path, *wanted)

    assert done.returncode == 0, done.stderr
    taken = re.search(r"\btriton-([\d.]+)", done.stdout.splitlines()[-1])
    assert taken is not None
    assert taken[1] == (CUDA["triton"] if build == "cuda" else TRITONS[-1])


def test_every_package_is_pinned_once() -> None:
    lines = [line for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines() if "==" in line]
    assert len(lines) == len(pins())
