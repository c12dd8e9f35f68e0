"""Imports go downwards only, and the core runs without the packages of the user interfaces."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
# Rank of each part; a file may import what ranks lower, and its own part.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("errors", "events", "checks", "config", "method_config", "kernels", "assets", "rss", "lane", "client"),
    ("documents", "model", "pot", "prefill"),
    (
        "answer",
        "chunk_times",
        "drafting",
        "history",
        "passages",
        "provenance",
        "reading",
        "retention_history",
        "session",
        "skimming",
        "sources",
        "engine",
        "session_file",
        "library",
        "restoring",
        "revival",
        "telemetry",
    ),
    ("machine", "results", "contender", "decode_steps", "tables", "charts", "pages"),
    ("bench", "evaluation"),
    ("ui",),
    ("cli",),
)
RANKS = {part: rank for rank, layer in enumerate(LAYERS) for part in layer}
# Within these layers parts are one piece of work in several files; in the others they stand apart.
JOINED = {0, 1, 2, 3}
KERNELS_MAY_IMPORT = {"torch", "triton", "numpy", "numba", "llvmlite"}


def part_of(module: str) -> str:
    """`pot` of `ondevice.pot.memory_pot`, "" of the package itself."""
    return module.split(".")[1] if "." in module else ""


def files() -> list[tuple[str, Path]]:
    """Every module of the package with its part, the kernels among them."""
    found = [(part_of("ondevice." + ".".join(path.relative_to(ROOT / "ondevice").with_suffix("").parts)), path)
             for path in sorted((ROOT / "ondevice").rglob("*.py"))]  # fmt: skip
    return [*found, *(("kernels", path) for path in sorted((ROOT / "kernels").glob("*.py")))]


def imports(path: Path, *, at_top_only: bool = False) -> Iterator[str]:
    """Names of the imported modules; type checking alone does not count."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    skipped = {id(child) for node in ast.walk(tree) if _is_type_checking(node) for child in ast.walk(node)}
    nodes = tree.body if at_top_only else ast.walk(tree)
    for node in nodes:
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            assert node.module is not None
            yield node.module
            if node.module == "ondevice":
                yield from (f"ondevice.{alias.name}" for alias in node.names)


def _is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def test_every_part_has_its_place() -> None:
    assert {part for part, _ in files()} - {"__init__"} <= set(RANKS)


@pytest.mark.parametrize(("part", "path"), files(), ids=lambda value: value.name if isinstance(value, Path) else value)
def test_imports_go_downwards(part: str, path: Path) -> None:
    if part == "__init__":
        assert not [name for name in imports(path) if name.startswith("ondevice")]
        return
    for name in imports(path):
        if not name.startswith("ondevice.") or part_of(name) == part:
            continue
        above, below = RANKS[part], RANKS[part_of(name)]
        assert below < above or (below == above and above in JOINED), f"{path.name} imports {name}"


def test_kernels_know_only_torch() -> None:
    for path in (ROOT / "kernels").glob("*.py"):
        names = {name.split(".")[0] for name in imports(path)} - set(sys.stdlib_module_names)
        assert names <= KERNELS_MAY_IMPORT | {"ondevice"}, path.name
        assert all(name.startswith("ondevice.kernels") for name in imports(path) if name.startswith("ondevice"))
        at_top = {name.split(".")[0] for name in imports(path, at_top_only=True)}
        assert "triton" not in at_top, path.name
        assert path.name.startswith("_numba") or not at_top & {"numba", "llvmlite"}, path.name


def test_numba_is_not_loaded_before_it_compiles() -> None:
    done = run("import sys, ondevice.kernels.decode_attention; sys.exit('numba' in sys.modules)")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("package", "places"),
    [
        ("gradio", ("ondevice/ui/", "app.py")),
        ("transformers", ("ondevice/model/",)),
        ("typer", ("ondevice/cli/",)),
        ("pypdf", ("ondevice/documents/",)),
    ],
)
def test_large_packages_have_one_door(package: str, places: tuple[str, ...]) -> None:
    for path in [*(path for _, path in files()), ROOT / "app.py"]:
        where = path.relative_to(ROOT).as_posix()
        if any(name.split(".")[0] == package for name in imports(path)):
            assert where.startswith(places), f"{where} imports {package}"


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)


def test_the_core_needs_no_package_of_an_interface() -> None:
    blocked = ("gradio", "typer", "rich", "playwright", "pypdf", "defusedxml", "bitsandbytes")
    core = ("config", "engine", "session_file", "results", "tables", "pages", "bench.ingest", "bench.decode")
    core += (
        "bench.equip",
        "bench.source",
        "evaluation.run_passkey",
        "model.load",
        "telemetry",
        "kernels",
        "rss",
        "machine",
    )
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
    folders = {path.parent.relative_to(ROOT) for path in (ROOT / "ondevice").rglob("__init__.py")}
    found = {".".join(folder.parts) for folder in folders} | {"ondevice.kernels", "ondevice.assets"}
    assert named == found
