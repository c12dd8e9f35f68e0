"""Locks hold what the constraints say, by hash; the page of licences names all of it; an audit counts what it asks."""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
import tomllib
from importlib.metadata import distributions
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
UNLOCKED = {"torch", "triton"}


def script(name: str) -> ModuleType:
    spec = spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def entries(lock: str) -> dict[str, tuple[str, frozenset[str]]]:
    """Version and hashes by name."""
    text = (ROOT / lock).read_text(encoding="utf-8")
    found = {}
    for entry in re.split(r"^(?=[\w.-]+==)", text, flags=re.MULTILINE)[1:]:
        name, number = re.match(r"([\w.-]+)==([^\s;]+)", entry).groups()  # type: ignore[union-attr]
        found[name] = number, frozenset(re.findall(r"--hash=sha256:([0-9a-f]{64})", entry))
    return found


def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def wanted(*extras: str) -> list[Requirement]:
    found = project()
    texts = [*found["dependencies"], *(text for extra in extras for text in found["optional-dependencies"][extra])]
    return [Requirement(text) for text in texts]


@pytest.mark.parametrize(
    ("lock", "extras"), [("requirements.lock", ("gpu", "mcp", "dev")), ("requirements-image.lock", ("gpu", "mcp"))]
)
def test_a_lock_holds_what_the_project_wants_by_hash(lock: str, extras: tuple[str, ...]) -> None:
    held = entries(lock)
    assert all(hashes for _, hashes in held.values())
    assert not UNLOCKED & held.keys(), "their builds differ from machine to machine"
    assert not [name for name in held if name.startswith(("nvidia-", "cuda-"))], "they come with torch, or do not"
    for requirement in wanted(*extras):
        if requirement.name not in UNLOCKED:
            number, _ = held[canonical(requirement.name)]
            assert number in requirement.specifier, requirement


def test_a_lock_names_no_place() -> None:
    for lock in ("requirements.lock", "requirements-image.lock"):
        assert "://" not in (ROOT / lock).read_text(encoding="utf-8"), "each machine has its own index"


def test_the_lock_follows_the_constraints() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = dict(line.split("==") for line in lines if "==" in line)
    held = {name: number for name, (number, _) in entries("requirements.lock").items()}
    assert {name: held.get(name) for name in pins.keys() - UNLOCKED} == {
        name: number for name, number in pins.items() if name not in UNLOCKED
    }, "run `make lock`"


def test_the_lock_of_the_image_is_part_of_the_lock() -> None:
    everything, image = entries("requirements.lock"), entries("requirements-image.lock")
    assert image.items() <= everything.items(), "run `make lock`"
    assert not {"pytest", "mypy", "playwright", "hypothesis"} & image.keys()


def test_the_page_of_licences_is_current() -> None:
    licences = script("licences")
    page = licences.PAGE.read_text(encoding="utf-8")
    rows = {name: (number, words) for name, number, words in re.findall(r"^\| (\S+) \| (.+) \| (.+) \|$", page, re.M)}
    here = {  # but for what others bring along in folders of their own, as Ray does
        canonicalize_name(one.name): one.version for one in distributions(path=[sysconfig.get_path("purelib")])
    }
    for name, (number, _) in entries("requirements.lock").items():
        assert rows[name][0] == number, "run `make licences`"
        if here.get(canonicalize_name(name)) == number:
            assert rows[name][1] == licences.licence(name), "run `make licences`"
    assert rows.keys() >= UNLOCKED
    models = page.partition("## Models")[2]
    assert models == licences.page().partition("## Models")[2], "run `make licences`"


class TestAudit:
    def test_names_torch_as_well(self) -> None:
        names = {line.partition("==")[0] for line in script("audit").pinned()}
        assert names == entries("requirements.lock").keys() | {"torch"}

    def test_counts_what_was_not_looked_up(self) -> None:
        found = [{"name": "a", "version": "1", "vulns": []}, {"name": "b", "skip_reason": "not found"}]
        assert script("audit").verdict(found) == ("1 of 2 packages were looked up, 0 weaknesses are known.", False)

    def test_fails_at_a_known_weakness(self) -> None:
        weak = {"name": "a", "version": "1", "vulns": [{"id": "PYSEC-1", "fix_versions": ["2"]}]}
        text, is_weak = script("audit").verdict([weak])
        assert is_weak
        assert text.startswith("a 1: PYSEC-1, mended in ['2']\n")

    @pytest.mark.parametrize("out", ["", '{"dependencies": [{"name": "a", "skip_reason": "not found"}]}'])
    def test_without_a_network_says_that_nothing_was_audited(self, tmp_path: Path, out: str) -> None:
        python = tmp_path / "python"
        python.write_text(f"#!/bin/sh\n[ \"$2\" = pip ] || echo '{out}'\n")
        python.chmod(0o755)
        command = [sys.executable, ROOT / "scripts" / "audit.py", python]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("Nothing was audited: no list")
