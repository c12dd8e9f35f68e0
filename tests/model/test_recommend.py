"""Which model for which machine."""

from __future__ import annotations

import pytest
import torch

from ondevice.model.loading import placement
from ondevice.model.loading.hub import is_hub_id
from ondevice.model.loading.load import _embedded_notice
from ondevice.model.loading.placement import recommendation_for
from ondevice.model.loading.recommend import DEVICE_CLASSES, QWEN3_8B, recommend

GB = 10**9


@pytest.mark.parametrize(
    ("total", "cuda", "model"),
    [
        (3.9, None, "smollm2"),
        (7.6, None, "Qwen/Qwen3-0.6B"),
        (16.0, None, "Qwen/Qwen3-1.7B"),
        (7.4, 7.4, "Qwen/Qwen3-1.7B"),  # Jetson Orin Nano 8 GB: shared memory
        (16.0, 15.6, "Qwen/Qwen3-4B-Instruct-2507"),
        (64.0, 25.3, "Qwen/Qwen3-8B"),  # RTX 4090
        (64.0, 61.0, "Qwen/Qwen3-14B"),
        (16.0, 1.0, "Qwen/Qwen3-1.7B"),  # a GPU that is too small leaves the CPU
    ],
)
def test_each_machine_gets_its_model(total: float, cuda: float | None, model: str) -> None:
    found = recommend(int(total * GB), cuda is not None, int((cuda or 0) * GB))
    assert found.model == model
    assert found.command.startswith("ondevice app")
    assert model == "smollm2" or f"--model {model}" in found.command
    assert found.why


def test_twelve_gigabytes_take_the_larger_model_in_four_bits() -> None:
    found = recommend(32 * GB, True, int(12.9 * GB))
    assert found.command == "ondevice app --model Qwen/Qwen3-8B --quantization 4bit"
    assert "6.4 GB in 4 bits" in found.why


@pytest.mark.parametrize("row", DEVICE_CLASSES, ids=lambda row: row.label)
def test_weights_leave_room_for_the_document(row) -> None:
    assert is_hub_id(row.model.hub_id)
    assert row.weight_bytes < 0.8 * row.min_memory_bytes


def test_bytes_follow_from_the_parameters() -> None:
    assert QWEN3_8B.weight_bytes(2) == 16_381_470_720
    assert QWEN3_8B.num_embedding_parameters * 2 < QWEN3_8B.four_bit_bytes < QWEN3_8B.weight_bytes(1)


def test_notice_of_the_default_model_names_the_better_one(monkeypatch: pytest.MonkeyPatch) -> None:
    better = recommend(8 * GB, False)
    monkeypatch.setattr("ondevice.model.loading.load.recommendation_for", lambda device: better)
    assert f"`{better.command}`" in _embedded_notice(torch.device("cpu"))
    monkeypatch.setattr("ondevice.model.loading.load.recommendation_for", lambda device: recommend(4 * GB, False))
    assert "For this machine" not in _embedded_notice(torch.device("cpu"))


def test_recommendation_reads_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement.psutil, "virtual_memory", lambda: type("M", (), {"total": 8 * GB})())
    assert recommendation_for(torch.device("cpu")).model == "Qwen/Qwen3-0.6B"
