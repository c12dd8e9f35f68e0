"""Print the tests of the laboratory and of the Triton kernels that the commits of the last two days may have broken.

A test file is named if it changed, or a file of the laboratory or of `tests/builders` that it comes to by imports, or a
file of the product that one of these imports itself; those of Triton also where a kernel for it changed. `make test`
runs what is named, less what is slow; `make test-all` runs all of them.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PLACES = {
    "ondevice_bench": "bench", "ondevice_batch": "batch", "ondevice.kernels": "kernels", "ondevice": "ondevice",
    "tests": "tests",
}  # fmt: skip
SINCE = "2 days ago"
TRITON = {  # files of tests, and what each starts in a process of its own
    "tests/triton/test_triton.py": "tests/triton/triton_comparison.py",
    "tests/triton/test_triton_compile.py": "tests/triton/triton_compilation.py",
}
FOLLOWED = ("bench/", "tests/")  # of these, what they import in turn counts too


def changed(since: str = SINCE) -> set[str]:
    """Files of the commits since then, and those that are not committed; pure moves are none."""
    command = ["git", "log", f"--since={since}", "-M100%", "--diff-filter=d", "--name-status", "--format="]
    lines = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    names = {fields[-1] for line in lines if (fields := line.split("\t")) and not line.startswith("R100")}
    command = ["git", "diff", "HEAD", "--name-only"]
    return (names | set(subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.split("\n"))) - {""}


def imported(path: Path) -> Iterator[str]:
    """Files of this repository that a file imports, as paths."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            modules = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        else:
            continue
        for module in modules:
            for package, folder in PLACES.items():
                if module == package or module.startswith(f"{package}."):
                    rest = folder + module[len(package) :].replace(".", "/")
                    yield from (name for name in (f"{rest}.py", f"{rest}/__init__.py") if (ROOT / name).is_file())
                    break


def reached(test: str) -> set[str]:
    """The file of tests, and all that a change of which may break it."""
    seen = {test, TRITON.get(test, test)}
    waiting = list(seen)
    while waiting:
        for name in imported(ROOT / waiting.pop()):
            if name not in seen:
                seen.add(name)
                waiting += [name] if name.startswith(FOLLOWED) else []
    return seen


def affected(tests: list[str], names: set[str]) -> list[str]:
    """Those of `tests` that one of the changed files may have broken."""
    kernels = {name for name in names if name.startswith("kernels/triton/")}
    return [test for test in tests if reached(test) & names or (test in TRITON and kernels)]


def main() -> None:
    """Print the affected files of tests, one a line."""
    laboratory = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "bench/tests").rglob("test_*.py"))
    sys.stdout.writelines(f"{test}\n" for test in affected([*TRITON, *laboratory], changed()))


if __name__ == "__main__":
    main()
