"""What the set-up of an image does over bases that cannot be built here, told from the metadata of their packages."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "image_setup.py"
CPU = {"python": (3, 11)}
DESKTOP = {
    "python": (3, 11), "torch": "2.10.0+cu128", "cuda": "12.8", "triton": "3.6.0", "wanted_triton": "==3.6.0",
    "has_compiler": True, "has_header": True,
}  # fmt: skip
JETSON = {**DESKTOP, "python": (3, 12), "machine": "aarch64", "torch": "2.7.0", "triton": "3.3.0", "wanted_triton": ""}


def _script() -> Any:
    spec = spec_from_file_location("image_setup", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules["image_setup"] = module  # where its dataclasses look themselves up
    spec.loader.exec_module(module)
    return module


setup = _script()


def plan_of(facts: dict[str, Any], **changes: Any) -> Any:
    return setup.plan(setup.Base(**{**facts, **changes}))


def installed(folder: Path, name: str, version: str, *requires: str) -> None:
    """The metadata of a package, as pip leaves it."""
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    lines = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}", *(f"Requires-Dist: {one}" for one in requires)]
    (info / "METADATA").write_text("\n".join(lines) + "\n")


def torch_in(folder: Path, version: str, cuda: str | None, *requires: str) -> None:
    installed(folder, "torch", version, *requires)
    (folder / "torch").mkdir()
    (folder / "torch" / "version.py").write_text(
        f"from typing import Optional\n__version__ = '{version}'\ndebug = False\ncuda: Optional[str] = {cuda!r}\n"
        "git_version = '0'\nhip: Optional[str] = None\n"
    )


class TestLook:
    def test_a_base_without_torch(self, tmp_path: Path) -> None:
        base = setup.look((str(tmp_path),))
        assert (base.torch, base.cuda, base.triton, base.wanted_triton) == ("", "", "", "")
        assert base.python == sys.version_info[:2]

    def test_the_desktop_base(self, tmp_path: Path) -> None:
        wanted = 'triton==3.6.0; platform_system == "Linux"'
        torch_in(tmp_path, "2.10.0+cu128", "12.8", "filelock", wanted, 'nvidia-cudnn-cu12==9.1; extra == "x"')
        installed(tmp_path, "triton", "3.6.0")
        base = setup.look((str(tmp_path),))
        assert (base.torch, base.cuda, base.triton, base.wanted_triton) == ("2.10.0+cu128", "12.8", "3.6.0", "==3.6.0")

    def test_a_jetson_base_says_its_cuda_in_a_file_alone(self, tmp_path: Path) -> None:
        torch_in(tmp_path, "2.7.0", "12.8", "filelock")
        base = setup.look((str(tmp_path),))
        assert (base.torch, base.cuda, base.triton, base.wanted_triton) == ("2.7.0", "12.8", "", "")

    def test_a_build_for_the_cpu(self, tmp_path: Path) -> None:
        torch_in(tmp_path, "2.13.0+cpu", None)
        assert setup.look((str(tmp_path),)).cuda == ""

    def test_nvidia_names_triton_differently(self, tmp_path: Path) -> None:
        torch_in(tmp_path, "2.10.0a0+b4e4ee81d3", "13.1", "pytorch-triton==3.5.0+git1")
        installed(tmp_path, "pytorch-triton", "3.5.0")
        base = setup.look((str(tmp_path),))
        assert (base.triton, base.wanted_triton) == ("3.5.0", "==3.5.0+git1")
        assert setup._is_wanted(base.triton, base.wanted_triton)


class TestPlan:
    def test_a_base_without_torch_gets_that_of_the_constraints(self) -> None:
        assert plan_of(CPU) == setup.Plan(installs_torch=True)

    @pytest.mark.parametrize("base", [DESKTOP, JETSON])
    def test_a_base_keeps_its_torch_and_its_triton(self, base: dict[str, Any]) -> None:
        found = plan_of(base)
        assert not found.installs_torch
        assert not found.debian
        assert f"torch {base['torch']} of the base stays" in found.notes[0]
        assert found.notes[1:] == (f"So does its Triton {base['triton']}.",)

    def test_jetpack_6_as_it_comes_is_refused_with_a_base_that_will_do(self) -> None:
        with pytest.raises(setup.Refused, match=r"Python 3\.10, for which its torch 2\.7\.0 was built") as caught:
            plan_of(JETSON, python=(3, 10))
        assert "dustynv/pytorch:2.7-r36.4.0-cu128-24.04" in str(caught.value)
        assert "PYTHON_VERSION=3.11" in str(caught.value)

    def test_an_old_torch_is_refused(self) -> None:
        with pytest.raises(setup.Refused, match=r"torch 2\.5\.1; ondevice needs 2\.7"):
            plan_of(DESKTOP, torch="2.5.1")

    @pytest.mark.parametrize("triton", ["", "3.2.0"])
    def test_without_a_triton_that_will_do_torch_computes(self, triton: str) -> None:
        found = plan_of(JETSON, triton=triton)
        assert not found.installs_torch
        assert "torch's own kernels compute" in found.notes[-1]

    def test_a_triton_that_torch_did_not_ask_for_is_said(self) -> None:
        assert "asks for Triton ==3.6.0" in plan_of(DESKTOP, triton="3.7.1").notes[-1]

    def test_what_triton_lacks_is_installed(self) -> None:
        assert plan_of(DESKTOP, has_compiler=False).debian == ("gcc", "libc6-dev")
        ubuntu = plan_of(JETSON, has_header=False, has_packaged_python=True)
        assert ubuntu.debian == ("libpython3.12-dev",)
        assert plan_of(CPU).debian == (), "nothing is compiled there"

    def test_only_a_gpu_of_a_desktop_gets_bitsandbytes(self) -> None:
        assert setup.takes_gpu_packages("12.8", "x86_64")
        assert not setup.takes_gpu_packages("12.8", "aarch64")
        assert not setup.takes_gpu_packages("", "x86_64")


class TestPackages:
    """What would be run, over a base whose folder is made up."""

    @pytest.fixture
    def commands(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
        """Filled with the commands; the lock of an installation stands in place of its file."""
        found: list[list[str]] = []
        own = tmp_path / "venv" / "lib" / "python3.11" / "site-packages"

        def run(command: list[str]) -> None:
            if command[1:3] == ["-m", "venv"]:
                own.mkdir(parents=True)
            if "-r" in command:
                at = command.index("-r") + 1
                command = [*command[:at], Path(command[at]).read_text()]
            if command[-1].startswith("torch=="):
                torch_in(own, "2.13.0", "13.0")
            found.append(command)

        monkeypatch.chdir(ROOT)
        monkeypatch.setattr(setup, "VENV", tmp_path / "venv")
        monkeypatch.setattr(setup, "_run", run)
        return found

    def test_a_base_of_a_gpu_is_borrowed_from(self, tmp_path: Path, commands: list[list[str]]) -> None:
        torch_in(tmp_path / "base", "2.10.0+cu128", "12.8")
        setup.packages(setup.Base(**DESKTOP, folders=(str(tmp_path / "base"),)))
        (lent,) = (tmp_path / "venv").glob("lib/*/site-packages/base.pth")
        assert lent.read_text().splitlines() == [str(tmp_path / "base")]
        locks = [command[-1] for command in commands if "--require-hashes" in command]
        assert [lock.startswith("bitsandbytes==") for lock in locks] == [False, True]
        assert all("--no-deps" in command for command in commands if "install" in command)
        assert not [command for command in commands if command[-1].startswith("torch")]

    def test_a_jetson_does_without_bitsandbytes(self, tmp_path: Path, commands: list[list[str]]) -> None:
        torch_in(tmp_path / "base", "2.7.0", "12.8")
        setup.packages(setup.Base(**JETSON, folders=(str(tmp_path / "base"),)))
        assert "bitsandbytes==" not in "".join(command[-1] for command in commands)

    def test_a_bare_base_gets_torch_from_the_index_that_was_named(
        self, tmp_path: Path, commands: list[list[str]], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TORCH_ARGS", "--index-url 'https://example.org/a b'")
        monkeypatch.setenv("PIP_ARGS", "--proxy here")
        setup.packages(setup.Base(**CPU))
        assert not list((tmp_path / "venv").glob("lib/*/site-packages/base.pth"))
        (torch,) = [command for command in commands if command[-1].startswith("torch==")]
        assert torch[torch.index("--index-url") + 1] == "https://example.org/a b"
        assert all(command[command.index("--proxy") + 1] == "here" for command in commands if "install" in command)

    def test_a_torch_that_changed_is_refused(
        self, tmp_path: Path, commands: list[list[str]], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        torch_in(tmp_path / "base", "2.10.0+cu128", "12.8")
        run = setup._run

        def bringing_torch(command: list[str]) -> None:
            run(command)
            if command[1:3] == ["-m", "venv"]:
                torch_in(tmp_path / "venv" / "lib" / "python3.11" / "site-packages", "2.13.0", "13.0")

        monkeypatch.setattr(setup, "_run", bringing_torch)
        with pytest.raises(setup.Refused, match=r"gave way to 2\.13\.0"):
            setup.packages(setup.Base(**DESKTOP, folders=(str(tmp_path / "base"),)))

    def test_what_pip_is_told_by_a_base_is_left_out(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in setup.OF_THE_BASE:
            monkeypatch.setenv(name, "https://example.org")
        seen: list[dict[str, str]] = []
        monkeypatch.setattr(subprocess, "run", lambda command, check, env: seen.append(env))
        setup._run(["true"])
        assert not set(setup.OF_THE_BASE) & seen[0].keys()
        assert seen[0]["PATH"] == os.environ["PATH"]


def test_the_lock_is_taken_apart_without_loss() -> None:
    text = (ROOT / "requirements-image.lock").read_text(encoding="utf-8")
    found = setup.entries(text)
    assert "".join(found.values()) == text
    assert "bitsandbytes" in found
    assert len(found) == len(re.findall(r"^[\w.-]+==", text, re.MULTILINE))


def test_an_old_python_can_say_what_is_wrong() -> None:
    """It is read by the base's Python, which may be too old for ondevice: no syntax of a later one."""
    import ast

    ast.parse(SCRIPT.read_text(encoding="utf-8"), feature_version=(3, 8))
    done = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "usage: image_setup.py packages" in done.stderr
    assert {field.name for field in dataclasses.fields(setup.Base)} == DESKTOP.keys() | {
        "folders",
        "machine",
        "has_packaged_python",
    }
