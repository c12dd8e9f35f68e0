"""Packed weights are kept once and mapped from then on; without them, or where they are damaged, a model is packed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from ondevice.model.loading import cache_folder, gguf_file, gguf_weights, kept_tiles
from ondevice.model.loading.load import load_model
from ondevice.model.packed_modules import PackedLinear
from tests.builders.gguf_files import write_gguf
from tests.builders.models import logits_of

IDS = torch.arange(12)[None]


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ONDEVICE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(kept_tiles, "_FEWEST", 0)
    return write_gguf(tmp_path / "tiny.gguf", architecture="llama", kinds=("Q4_1",), bias=False)


def logits(path: Path) -> torch.Tensor:
    return logits_of(load_model(str(path), device="cpu").model, IDS)


def folders(path: Path) -> list[Path]:
    return sorted((path.parent / "cache").glob("packed-*/"))


def never(*given: Any) -> Any:
    raise AssertionError("packed again")


def test_a_second_start_maps_what_the_first_one_packed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    first = load_model(str(path), device="cpu", on_progress=lambda stage, _: told.append(stage)).model
    expected = logits_of(first, IDS)
    assert any(stage.startswith("Keeping tiny.gguf packed for the next start (") for stage in told)
    monkeypatch.setattr(gguf_weights.StoredMatrix, "raw", never)
    monkeypatch.setattr(gguf_file, "_parsed", never)
    model = load_model(str(path), device="cpu").model
    assert torch.equal(logits_of(model, IDS), expected)  # which lays projections side by side, to multiply with them
    linears = [module for module in model.modules() if isinstance(module, PackedLinear)]
    storages = {part.untyped_storage().data_ptr() for linear in linears for part in linear.weight.tensors}
    assert len(storages) == 1, "a copy is in memory beside the file"
    assert torch.equal(logits_of(model, IDS), expected)


@pytest.mark.parametrize("name", ["tiles", "index.json", "header.json", "tokenizer.json", "chat.json", "manifest.json"])
@pytest.mark.parametrize("damage", [b"", b"{}"], ids=["cut", "other bytes"])
def test_what_is_damaged_is_made_anew(path: Path, name: str, damage: bytes) -> None:
    expected = logits(path)
    [folder] = folders(path)
    whole = {file.name: file.read_bytes() for file in folder.iterdir() if file.name != "manifest.json"}
    (folder / name).write_bytes(damage)
    assert torch.equal(logits(path), expected)
    assert {file.name: file.read_bytes() for file in folder.iterdir() if file.name != "manifest.json"} == whole


def test_what_was_made_of_another_file_is_not_taken(path: Path) -> None:
    other = write_gguf(path.with_name("other.gguf"), architecture="llama", kinds=("Q8_0",), bias=False)
    expected = logits(path)
    [mine] = folders(path)
    logits(other)
    [theirs] = {*folders(path)} - {mine}
    shutil.rmtree(mine)
    theirs.rename(mine)
    assert torch.equal(logits(path), expected)


def test_the_tokenizer_of_a_second_start_is_that_of_the_first_one(path: Path) -> None:
    first, second = (load_model(str(path), device="cpu").tokenizer for _ in range(2))
    assert first.fingerprint == second.fingerprint
    assert first.chat_parts(grounded=True).prefix == second.chat_parts(grounded=True).prefix
    assert (first.eos_ids, first.control_ids) == (second.eos_ids, second.control_ids)


def test_a_second_start_does_without_transformers(path: Path) -> None:
    logits(path)
    code = (
        "import sys; from ondevice.model.loading.load import load_model;"
        f"load_model({str(path)!r}, device='cpu').tokenizer.chat_parts();"
        "print([name for name in ('transformers', 'torch._dynamo', 'accelerate') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=200)
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr


def test_without_room_a_model_is_packed_at_every_start(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(path.parent)
    monkeypatch.setattr(cache_folder.shutil, "disk_usage", lambda _: usage._replace(free=1000))
    assert torch.equal(logits(path), logits(path))
    assert folders(path) == []


def test_what_is_kept_goes_with_its_file(path: Path) -> None:
    logits(path)
    other = write_gguf(path.with_name("other.gguf"), architecture="llama", kinds=("Q8_0",), bias=False)
    logits(other)
    assert len(folders(path)) == 2
    write_gguf(path, architecture="llama", kinds=("Q4_0",), bias=False)
    other.unlink()
    logits(path)
    assert len(folders(path)) == 1, "of a file that is gone, and of one that is another now"
    assert kept_tiles.drop_tiles(path) > 0
    assert folders(path) == []
