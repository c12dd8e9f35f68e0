"""The choices that Triton kernels are launched with: tried once, kept in a file, and no reason to fail."""

import json
from pathlib import Path

import pytest
import torch
from ondevice.kernels.triton import tuning
from ondevice.kernels.triton.tuning import Choice, cache_folder, tuned

from ondevice.model.loading.cache_folder import cache_dir

CANDIDATES = [Choice(1, 4, 2), Choice(8, 4, 2), Choice(16, 8, 2)]


@pytest.fixture(autouse=True)
def a_gpu(monkeypatch, tmp_path):
    """A device that is fastest with 8 splits, and an empty cache folder."""
    monkeypatch.setenv("ONDEVICE_CACHE", str(tmp_path))
    monkeypatch.delenv("ONDEVICE_TUNING", raising=False)
    monkeypatch.setattr(tuning, "_known", {})
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Some GPU")
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(
        tuning, "_fastest", lambda candidates, launch: min(candidates, key=lambda c: abs(c.num_splits - 8))
    )


def ask(key="a kernel"):
    return tuned(key, torch.device("cuda", 0), CANDIDATES, lambda choice: None)


def forget(monkeypatch):
    monkeypatch.setattr(tuning, "_known", {})
    monkeypatch.setattr(tuning, "_fastest", lambda candidates, launch: pytest.fail("it was tried again"))


def test_the_fastest_is_kept_for_the_next_process(monkeypatch, tmp_path):
    assert ask() == CANDIDATES[1]
    assert json.loads((tmp_path / "triton_tuning.json").read_text()) == {"Some GPU, a kernel": [8, 4, 2]}
    forget(monkeypatch)
    assert ask() == CANDIDATES[1]


def test_other_processes_lose_nothing(tmp_path):
    (tmp_path / "triton_tuning.json").write_text(json.dumps({"Other GPU, a kernel": [2, 4, 3]}))
    ask()
    assert len(json.loads((tmp_path / "triton_tuning.json").read_text())) == 2


@pytest.mark.parametrize("content", ["", "[]", '{"Some GPU, a kernel": 3}', '{"Some GPU, a kernel": [1, 2]}'])
def test_a_file_that_is_no_such_file_is_written_anew(content, tmp_path):
    (tmp_path / "triton_tuning.json").write_text(content)
    assert ask() == CANDIDATES[1]


def test_a_folder_that_cannot_be_written_is_no_failure(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ONDEVICE_CACHE", str(tmp_path / "file" / "folder"))
    assert ask() == CANDIDATES[1]


def test_nothing_is_tried_while_a_graph_records_or_when_switched_off(monkeypatch):
    forget(monkeypatch)
    monkeypatch.setenv("ONDEVICE_TUNING", "off")
    assert ask() == CANDIDATES[0]
    monkeypatch.delenv("ONDEVICE_TUNING")
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    assert ask() == CANDIDATES[0]


def test_the_folder_is_the_one_of_converted_models(monkeypatch, tmp_path):
    assert cache_folder() == cache_dir()
    monkeypatch.delenv("ONDEVICE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    assert cache_folder() == cache_dir()
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == cache_dir()
