"""Our folder `kernels/` and the package of that name that transformers looks for: neither takes the other's place."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from ondevice.model.loading._transformers import transformers

ROOT = Path(__file__).resolve().parents[2]

THROUGH_THE_DOOR = """
import sys
from importlib.util import find_spec
from ondevice.model.loading._transformers import hide_our_kernels, transformers
from transformers.utils.import_utils import is_kernels_available
import transformers.integrations.hub_kernels
import ondevice.kernels
found = find_spec("kernels")
print("available", is_kernels_available())
print("found", found.origin if found else None)
print("ours", ondevice.kernels.__file__)
"""
# What happens without the door: the same import, with our folder found first.
PAST_THE_DOOR = (
    "from transformers.utils.import_utils import is_kernels_available; print('available', is_kernels_available())"
)


def _fake_package(folder: Path, version: str) -> Path:
    (folder / "kernels").mkdir(parents=True)
    (folder / "kernels" / "__init__.py").write_text(f"__version__ = {version!r}\n")
    info = folder / f"kernels-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: kernels\nVersion: {version}\n")
    (info / "top_level.txt").write_text("kernels\n")
    return folder


def _run(script: str, *path: Path) -> subprocess.Popen[str]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, path))}
    return subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=path[0] if path else ROOT.parent,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


# Each process imports transformers and torch.
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, str, str]]:
    """Exit code, standard output and error of every case; all processes at once, each imports for seconds."""
    fake = _fake_package(tmp_path_factory.mktemp("right"), transformers.utils.import_utils.KERNELS_MIN_VERSION)
    old = _fake_package(tmp_path_factory.mktemp("old"), "0.0.1")
    running = {
        "checkout": _run(THROUGH_THE_DOOR, ROOT),
        "checkout before package": _run(THROUGH_THE_DOOR, ROOT, fake),
        "package before checkout": _run(THROUGH_THE_DOOR, old, ROOT),
        "without the door": _run(PAST_THE_DOOR, ROOT, fake),
    }
    results = {}
    for name, process in running.items():
        out, err = process.communicate(timeout=200)
        results[name] = (process.returncode, out, err)
    return results


@pytest.mark.parametrize("case", ["checkout", "checkout before package"])
def test_checkout_on_the_path_hides_only_its_own_folder(outputs: dict[str, tuple[int, str, str]], case: str) -> None:
    code, out, err = outputs[case]
    assert code == 0, err
    assert "available False" in out
    assert "found None" in out
    assert f"ours {ROOT / 'kernels' / '__init__.py'}" in out


def test_installed_package_stays_visible(outputs: dict[str, tuple[int, str, str]]) -> None:
    code, out, err = outputs["package before checkout"]
    assert code == 0, err
    assert "found None" not in out
    assert str(ROOT / "kernels") not in out.split("ours")[0]
    assert "ours" in out


def test_without_the_door_transformers_takes_our_folder(outputs: dict[str, tuple[int, str, str]]) -> None:
    """The trap is there: if this fails one day, the door is no longer needed."""
    code, out, _ = outputs["without the door"]
    assert code != 0 or "available True" in out


@pytest.mark.skipif(torch.version.cuda is not None or torch.version.hip is not None, reason="this torch has GPUs")
def test_triton_is_not_loaded_where_no_gpu_could_use_it() -> None:
    code = "\n".join(
        (
            "import sys",
            "from ondevice.model.loading._transformers import import_models, transformers",
            "import_models()",
            "import transformers.models.qwen2.modeling_qwen2",
            "print(sorted({'triton', 'torch._dynamo'} & set(sys.modules)))",
            "import triton",
        )
    )
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=200)
    assert (done.returncode, done.stdout.split()) == (0, ["['torch._dynamo']"]), done.stderr
