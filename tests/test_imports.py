"""Imports go downwards only, folder by folder, and the core runs without the packages of the user interfaces."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PLACES = {"ondevice": "ondevice", "kernels": "ondevice.kernels", "batch": "ondevice_batch", "bench": "ondevice_bench"}
# From the top floor down: a file may import what stands below its own folder, and files of its own folder.
LABORATORY = ("cli", "speed", "quality", "results", "recording", "paged", "client")
BATCH = ("command", "outcome", "jobs", "work", "asked", "corpus", "places", "cluster")
PRODUCT = (
    "cli", "ui", "api", "serving", "scan", "library", "planning", "session", "prefill", "decode", "telemetry",
    "context", "speculator", "model", "pot", "documents", "search", "words", "config", "machine",
    "stage_clock", "kernels", "regular_file", "files", "schema", "events", "errors", "extras", "assets",
)  # fmt: skip
FLOORS = [
    *(f"ondevice_bench.{name}" for name in LABORATORY),
    *(f"ondevice_batch.{name}" for name in BATCH),
    *(f"ondevice.{name}" for name in PRODUCT),
]
KERNELS_MAY_IMPORT = {"torch", "triton", "numpy", "numba", "llvmlite"}


def module_of(path: Path) -> str:
    """`ondevice.pot.undo` of ondevice/pot/undo.py, `ondevice.kernels.rope` of kernels/rope.py."""
    place, *parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join([PLACES[place], *(parts[:-1] if parts[-1] == "__init__" else parts)])


def files_in(folder: str) -> Iterator[Path]:
    return (path for path in sorted((ROOT / folder).rglob("*.py")) if not path.is_relative_to(ROOT / folder / "tests"))


FILES = {module_of(path): path for folder in PLACES for path in files_in(folder)}


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
    """Counted from the top; a package itself, which holds the version at most, lies below them all."""
    return FLOORS.index(".".join(module.split(".")[:2])) if "." in module else len(FLOORS)


def test_imports_go_downwards() -> None:
    own = own_imports()
    assert not own.pop("ondevice") | own.pop("ondevice_batch") | own.pop("ondevice_bench"), (
        "a package itself imports nothing"
    )
    upwards = [
        f"{name} imports {other}"
        for name, others in own.items()
        for other in others
        if name.split(".")[:2] != other.split(".")[:2] and floor_of(name) > floor_of(other)
    ]
    assert not upwards, "\n".join(upwards)


def test_the_product_knows_neither_batch_nor_the_laboratory() -> None:
    for folder in ("ondevice", "kernels", "assets"):
        for path in (ROOT / folder).rglob("*.*"):
            if path.suffix in {".py", ".js", ".md"}:
                named = re.search(
                    r"ondevice(_batch|_bench|\.(batch|bench|evaluation|results))", path.read_text(encoding="utf-8")
                )
                assert named is None, f"{path} names {named[0]}"


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
        assert name.startswith("ondevice.kernels.triton.") or "triton" not in at_top, name
        assert name.startswith("ondevice.kernels.cpu.") or not at_top & {"numba", "llvmlite"}, name


def test_neither_numba_nor_triton_is_loaded_before_it_compiles() -> None:
    done = run("import sys, ondevice.model.decoder; sys.exit('numba' in sys.modules or 'triton' in sys.modules)")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("package", "places"),
    [
        ("gradio", ("ondevice/ui/", "app.py")),
        ("transformers", ("ondevice/model/", "bench/speed/kv_press_work.py")),  # the latter has its own
        ("typer", ("ondevice/cli/", "batch/command.py", "bench/cli/")),
        ("pypdf", ("ondevice/documents/",)),
        ("ray", ("batch/", "bench/cli/grid.py")),
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
    blocked = ("gradio", "typer", "rich", "playwright", "pypdf", "defusedxml", "selectolax", "bitsandbytes")
    core = (
        "ondevice.config", "ondevice.session.engine", "ondevice.session.saving", "ondevice.planning.calibrate",
        "ondevice.planning.footprint", "ondevice.library.index", "ondevice.machine.facts",
        "ondevice.model.loading.load", "ondevice.telemetry.telemetry", "ondevice.kernels",
        "ondevice_bench.results.result", "ondevice_bench.results.tables", "ondevice_bench.results.markdown",
        "ondevice_bench.speed.ingest", "ondevice_bench.speed.decode", "ondevice_bench.speed.equip.run",
        "ondevice_bench.speed.source", "ondevice_bench.speed.gpu.check", "ondevice_bench.quality.run_passkey",
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
        f"for name in {core}: importlib.import_module(name)\n"
    )
    done = run(code)
    assert done.returncode == 0, done.stderr


def test_help_does_not_load_torch() -> None:
    code = (
        "import sys, typer, ondevice.cli; print(*typer.main.get_command(ondevice.cli.app).commands);"
        "sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    )
    done = run(code)
    assert done.returncode == 0, done.stderr
    assert {"ask", "calibrate", "plan", "batch", "bench", "eval", "results", "record"} <= set(done.stdout.split())


@pytest.mark.parametrize(
    ("project", "package"), [(ROOT, "ondevice"), (ROOT / "batch", "ondevice_batch"), (ROOT / "bench", "ondevice_bench")]
)
def test_a_wheel_holds_every_package(project: Path, package: str) -> None:
    settings = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))
    found = {name for name, path in FILES.items() if path.name == "__init__.py" and name.split(".")[0] == package}
    assert set(settings["tool"]["setuptools"]["packages"]) - {"ondevice.assets"} == found


@pytest.mark.parametrize(("command", "missing"), [("batch", "./batch"), ("bench", "./batch ./bench")])
def test_a_command_of_what_is_not_installed_says_so(command: str, missing: str) -> None:
    code = (
        f"import importlib.metadata as m, sys; m.entry_points = lambda **_: (); sys.argv[1:] = ['{command}', 'art']\n"
        "from ondevice.cli import app; app()"
    )
    done = run(code)
    assert done.returncode == 2
    assert f"`{command}` belongs to another distribution" in done.stderr
    assert f"pip install {missing} " in " ".join(done.stderr.split())
