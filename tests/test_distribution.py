"""A source distribution and the wheel that it gives: whole, and enough to start the command in a fresh environment."""

from __future__ import annotations

import shutil
import site
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
BUILD = "import sys; from setuptools import build_meta; print(getattr(build_meta, sys.argv[1])(sys.argv[2]))"
pytestmark = pytest.mark.slow


def build(what: str, source: Path, to: Path) -> Path:
    """Run the backend that pip would run, in a process of its own, with the setuptools that is here."""
    to.mkdir()
    command = [sys.executable, "-c", BUILD, what, str(to)]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return to / done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the repository holds of the three distributions: building leaves files behind."""
    copy = tmp_path_factory.mktemp("checkout")
    for name in ("ondevice", "kernels", "assets", "batch", "bench"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", "build", "*.egg-info"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    return copy


@pytest.fixture(scope="module")
def wheel(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made from the unpacked source distribution, so that this holds all that it takes."""
    folder = tmp_path_factory.mktemp("built")
    with tarfile.open(build("build_sdist", checkout, folder / "sdist")) as archive:
        archive.extractall(folder / "unpacked", filter="data")
    (source,) = (folder / "unpacked").iterdir()
    return build("build_wheel", source, folder / "wheel")


def test_a_wheel_holds_code_kernels_and_assets(checkout: Path, wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    wanted = {path.relative_to(checkout).as_posix() for path in (checkout / "ondevice").rglob("*.py")}
    wanted |= {
        f"ondevice/kernels/{path.relative_to(checkout / 'kernels')}" for path in checkout.glob("kernels/**/*.py")
    }
    suffixes = {".css", ".html", ".js", ".json", ".md", ".svg", ".txt", ".py"}
    wanted |= {f"ondevice/assets/{path.name}" for path in (checkout / "assets").iterdir() if path.suffix in suffixes}
    assert held == wanted


@pytest.mark.parametrize("folder", ["batch", "bench"])
def test_batch_and_the_laboratory_are_wheels_of_their_own(checkout: Path, tmp_path: Path, folder: str) -> None:
    with zipfile.ZipFile(build("build_wheel", checkout / folder, tmp_path / "wheel")) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
        (points,) = (name for name in archive.namelist() if name.endswith("entry_points.txt"))
        assert "[ondevice.commands]" in archive.read(points).decode()
    code = {path.relative_to(checkout / folder) for path in (checkout / folder).rglob("*.py")}
    assert held == {f"ondevice_{folder}/{path.as_posix()}" for path in code if path.parts[0] not in ("tests", "build")}


def test_the_command_starts_from_the_wheel(wheel: Path, tmp_path: Path) -> None:
    """In a fresh environment to which the packages that are here are lent: pip installs nothing but the wheel."""
    pytest.importorskip("pip", reason="pip is not installed here")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True, timeout=120)
    python = tmp_path / "venv" / "bin" / "python"
    command = [sys.executable, "-m", "pip", "--isolated", "--disable-pip-version-check", "--python", str(python)]
    subprocess.run([*command, "install", "--quiet", "--no-deps", "--no-index", str(wheel)], check=True, timeout=120)
    (packages,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    lent = [path for path in sys.path if path.endswith("site-packages")] or site.getsitepackages()
    (packages / "lent.pth").write_text("\n".join(lent), encoding="utf-8")

    def run(*command: str) -> str:
        done = subprocess.run(
            [str(part) for part in command], cwd=tmp_path, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    from ondevice import __version__

    assert __version__ in run(str(python.with_name("ondevice")), "--version")
    where = run(
        str(python), "-c", "import ondevice.kernels.triton as k, ondevice.assets as a; print(k.__file__, *a.__path__)"
    )
    assert all(Path(path).is_relative_to(packages) for path in where.split())
