"""Memory of the process: pages of a mapped file can be given back, and no other ones."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from ondevice.machine.process import forget_mapped, resident_bytes
from ondevice.model.families import model_parts
from ondevice.model.loading.load import load_model
from tests.builders.models import save_checkpoint, tiny_model

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other systems do not offer it")

MEGABYTES = 64


def test_pages_of_a_mapped_file_leave_memory_and_can_still_be_read(tmp_path: Path) -> None:
    path = tmp_path / "numbers"
    path.write_bytes(bytes(range(256)) * (MEGABYTES << 12))
    mapped = torch.from_file(str(path), shared=False, size=MEGABYTES << 20, dtype=torch.uint8)
    total, before = int(mapped.sum()), resident_bytes()
    assert forget_mapped(mapped.data_ptr(), mapped.nbytes)
    assert before - resident_bytes() > (MEGABYTES << 20) * 0.9
    assert int(mapped.sum()) == total


def test_memory_that_is_in_no_file_stays_as_it_is() -> None:
    numbers = torch.arange(1 << 20)
    assert not forget_mapped(numbers.data_ptr(), numbers.nbytes)
    assert torch.equal(numbers, torch.arange(1 << 20))
    assert not forget_mapped(numbers.data_ptr(), 100), "less than a page"


# In a process of its own: a heap with holes from other tests fills these first.
HOLES = """
import torch
from ondevice.machine.process import large_pieces_mapped, resident_bytes
with large_pieces_mapped():
    pieces = [torch.ones(1 << 20) for _ in range(32)]  # of 4 MB
    before = resident_bytes()
    del pieces[::2]
    print(before - resident_bytes())
"""


def test_holes_of_a_loader_are_not_left_in_the_heap() -> None:
    """What is freed between pieces that stay goes back to the system by itself."""
    done = subprocess.run([sys.executable, "-c", HOLES], capture_output=True, text=True, check=True)
    assert int(done.stdout) > 50 << 20


def test_weights_laid_side_by_side_are_in_memory_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forgotten = list[int]()
    monkeypatch.setattr(
        "ondevice.model.families.fusing.forget_mapped", lambda address, num_bytes: forgotten.append(num_bytes)
    )
    model = load_model(str(save_checkpoint(tiny_model("llama"), tmp_path / "tiny"))).model
    attention, mlp = model.model.layers[0].self_attn, model.model.layers[0].mlp
    fused = (attention.q_proj, attention.k_proj, attention.v_proj, mlp.gate_proj, mlp.up_proj)
    model_parts(model)
    assert sorted(forgotten) == sorted(3 * [one.weight.nbytes for one in fused]), "of each of the three layers"
