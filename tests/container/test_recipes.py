"""Dockerfile, .dockerignore and compose.yaml go together, and with what the program looks for."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))


def test_hadolint_finds_nothing() -> None:
    hadolint = shutil.which("hadolint")
    if hadolint is None:
        pytest.skip("hadolint is not installed here")
    done = subprocess.run([hadolint, str(ROOT / "Dockerfile")], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout


def test_what_is_copied_is_there_and_not_ignored() -> None:
    admitted = re.findall(r"^!(\S+)$", (ROOT / ".dockerignore").read_text(encoding="utf-8"), re.MULTILINE)
    copied = [path for line in re.findall(r"^COPY (.+)$", DOCKERFILE, re.MULTILINE) for path in line.split()[:-1]]
    assert sorted(copied) == sorted(admitted)
    assert all((ROOT / path).exists() for path in copied)


@pytest.mark.parametrize("name", ["cpu", "gpu", "jetson"])
def test_a_service_can_write_nothing_but_its_volumes(name: str) -> None:
    service = COMPOSE["services"][name]
    assert service["profiles"] == [name], "none starts unasked"
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert all(port.startswith("127.0.0.1:") for port in service["ports"]), "for this machine alone"
    assert service["environment"]["ONDEVICE_AUTH"].startswith("${ONDEVICE_AUTH:?"), "it does not start without"
    places = {volume.partition(":")[2] for volume in service["volumes"]}
    assert places == set(re.findall(r'"(/\w+)"', re.search(r"^VOLUME (.+)$", DOCKERFILE, re.MULTILINE)[1]))  # type: ignore[index]
    assert service["build"]["args"].keys() <= set(re.findall(r"^ARG (\w+)=", DOCKERFILE, re.MULTILINE))


def test_all_that_is_written_goes_to_the_volumes() -> None:
    written = re.findall(r"\b(\w*(?:CACHE|DATA|HOME|CONFIGDIR)\w*)=(/\S+)", DOCKERFILE.partition("ONDEVICE_DATA=")[2])
    assert {name for name, _ in written} >= {"ONDEVICE_CACHE", "TRITON_CACHE_DIR", "NUMBA_CACHE_DIR", "HF_HOME"}
    assert all(path.startswith("/cache") for _, path in written)


def test_the_bases_of_the_pages_are_those_of_the_recipes() -> None:
    for name, page in (("gpu", "desktop-gpu.md"), ("jetson", "jetson.md")):
        base = COMPOSE["services"][name]["build"]["args"]["BASE"].removeprefix("${BASE-").removesuffix("}")
        assert base in DOCKERFILE
        assert base in (ROOT / "docs" / page).read_text(encoding="utf-8")
