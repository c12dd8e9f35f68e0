"""The choice of tests that a change may have broken."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]
PEERS = "bench/tests/speed/test_peers.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("affected_tests", ROOT / "scripts/affected_tests.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("changed", "is_affected"),
    [
        (PEERS, True),
        ("bench/speed/peers.py", True),
        ("bench/quality/measurement.py", True),  # which the file of tests comes to over others
        ("ondevice/config/__init__.py", True),  # which a file of the laboratory imports itself
        ("ondevice/ui/render.py", False),
        ("README.md", False),
    ],
)
def test_a_test_is_affected_by_what_it_comes_to(script: ModuleType, changed: str, is_affected: bool) -> None:
    assert script.affected([PEERS], {changed}) == [PEERS] * is_affected


@pytest.mark.parametrize(
    ("changed", "is_affected"),
    [
        ("kernels/triton/coded_attention.py", (True, True)),
        ("kernels/triton/shared.py", (True, True)),  # of which other kernels are made
        ("bench/speed/gpu/decode_cases.py", (True, False)),  # nothing of it is compiled
        ("kernels/cpu/packed_walk.py", (False, False)),
    ],
)
def test_triton_is_affected_by_its_kernels_and_cases(script: ModuleType, changed: str, is_affected: tuple) -> None:
    found = script.affected(list(script.TRITON), {changed})
    assert found == [test for test, one in zip(script.TRITON, is_affected, strict=True) if one]


def test_every_file_that_is_imported_is_found(script: ModuleType) -> None:
    assert {"bench/speed/peers.py", "bench/speed/llama_cpp.py"} <= script.reached(PEERS)
