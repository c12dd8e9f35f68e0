"""Imports go downwards only, folder by folder, and the core runs without the packages of the user interfaces."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
# From the top floor down: a file may import what stands below its own folder, and files of its own folder.
FLOORS = (
    "cli", "ui", "api", "serving", "bench", "evaluation", "batch", "scan", "session", "prefill", "decode", "telemetry",
    "context", "speculator", "model", "pot", "documents", "results", "words", "config", "memory", "kernels", "client",
    "regular_file", "files", "schema", "events", "errors", "extras", "assets",
)  # fmt: skip
KERNELS_MAY_IMPORT = {"torch", "triton", "numpy", "numba", "llvmlite"}


def module_of(path: Path) -> str:
    """`ondevice.pot.undo` of ondevice/pot/undo.py, `ondevice.kernels.rope` of kernels/rope.py."""
    parts = list(path.relative_to(ROOT).with_suffix("").parts)
    parts = parts if parts[0] == "ondevice" else ["ondevice", *parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {module_of(path): path for folder in ("ondevice", "kernels") for path in sorted((ROOT / folder).rglob("*.py"))}


def imports(path: Path, *, at_top_only: bool = False) -> Iterator[str]:
    """Names of the imported modules, those for type checking among them; of our own also `from folder import file`."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in tree.body if at_top_only else ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            assert node.module is not None
            files = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name for name in files if name in FILES)
            if any(name not in FILES for name in files):
                yield node.module


def own_imports() -> dict[str, set[str]]:
    """The files of this project that each of its files imports."""
    return {name: {other for other in imports(path) if other in FILES} - {name} for name, path in FILES.items()}


def floor_of(module: str) -> int:
    """Counted from the top; the package itself, which holds nothing but the version, lies below them all."""
    return FLOORS.index(module.split(".")[1]) if "." in module else len(FLOORS)


def test_imports_go_downwards() -> None:
    own = own_imports()
    assert not own.pop("ondevice"), "the package itself imports nothing"
    upwards = [
        f"{name} imports {other}"
        for name, others in own.items()
        for other in others
        if name.split(".")[:2] != other.split(".")[:2] and floor_of(name) > floor_of(other)
    ]
    assert not upwards, "\n".join(upwards)


def test_no_imports_go_in_a_circle() -> None:
    try:
        TopologicalSorter(own_imports()).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_kernels_know_only_torch() -> None:
    for name, path in FILES.items():
        if not name.startswith("ondevice.kernels"):
            continue
        names = {other.split(".")[0] for other in imports(path)} - set(sys.stdlib_module_names)
        assert names <= KERNELS_MAY_IMPORT | {"ondevice"}, name
        assert all(other.startswith("ondevice.kernels") for other in imports(path) if other.startswith("ondevice"))
        at_top = {other.split(".")[0] for other in imports(path, at_top_only=True)}
        assert "triton" not in at_top, name
        assert name.startswith("ondevice.kernels.cpu.") or not at_top & {"numba", "llvmlite"}, name


def test_numba_is_not_loaded_before_it_compiles() -> None:
    done = run("import sys, ondevice.kernels.decode_attention; sys.exit('numba' in sys.modules)")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("package", "places"),
    [
        ("gradio", ("ondevice/ui/", "app.py")),
        ("transformers", ("ondevice/model/", "ondevice/bench/kv_press_work.py")),  # the latter has its own
        ("typer", ("ondevice/cli/",)),
        ("pypdf", ("ondevice/documents/",)),
        ("ray", ("ondevice/batch/", "ondevice/cli/batch")),
    ],
)
def test_large_packages_have_one_door(package: str, places: tuple[str, ...]) -> None:
    for path in [*FILES.values(), ROOT / "app.py"]:
        where = path.relative_to(ROOT).as_posix()
        if any(name.split(".")[0] == package for name in imports(path)):
            assert where.startswith(places), f"{where} imports {package}"


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)


def test_the_core_needs_no_package_of_an_interface() -> None:
    blocked = ("gradio", "typer", "rich", "playwright", "pypdf", "defusedxml", "bitsandbytes")
    core = (
        "config", "session.engine", "session.saving", "results.results", "results.tables", "results.markdown",
        "results.machine", "results.process_memory", "bench.ingest", "bench.decode", "bench.equip.run", "bench.source",
        "evaluation.run_passkey", "model.loading.load", "telemetry.telemetry", "kernels",
    )  # fmt: skip
    code = (
        "import sys\n"
        "class Block:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name.split('.')[0] in {blocked}:\n"
        "            frame, names = sys._getframe(), []\n"
        "            while frame: names.append(frame.f_globals.get('__name__', '')); frame = frame.f_back\n"
        "            importer = next(n for n in names[1:] if not n.startswith('importlib') and n != '__main__')\n"
        "            if importer.startswith('ondevice'): raise ModuleNotFoundError(name, name=name)\n"
        "sys.meta_path.insert(0, Block())\n"
        "import importlib\n"
        f"for name in {core}: importlib.import_module('ondevice.' + name)\n"
    )
    done = run(code)
    assert done.returncode == 0, done.stderr


def test_help_does_not_load_torch() -> None:
    done = run("import sys, ondevice.cli; sys.exit('torch' in sys.modules or 'transformers' in sys.modules)")
    assert done.returncode == 0, done.stderr


def test_a_wheel_holds_every_package() -> None:
    named = set(tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]["packages"])
    found = {name for name, path in FILES.items() if path.name == "__init__.py"} | {"ondevice.assets"}
    assert named == found
