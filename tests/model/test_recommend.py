"""Which model for which machine."""

from __future__ import annotations

import pytest
import torch

from ondevice.errors import ModelError
from ondevice.model.loading import placement
from ondevice.model.loading.catalogue import CATALOGUE, SMOLLM2
from ondevice.model.loading.placement import recommendations_for
from ondevice.model.loading.recommend import DEVICE_CLASSES, recommend

GB = 10**9


@pytest.mark.parametrize(
    ("total", "cuda", "model"),
    [
        (2.0, None, "smollm2-135m"),
        (7.6, None, "qwen3-1.7b-gguf"),
        (3.8, None, "qwen3-0.6b-gguf"),
        (7.4, 7.4, "qwen3-1.7b"),  # Jetson Orin Nano 8 GB: shared memory
        (16.0, 15.6, "qwen3-4b"),
        (64.0, 25.3, "qwen3-8b"),  # RTX 4090
        (64.0, 61.0, "qwen3-14b"),
        (16.0, 1.0, "qwen3-1.7b-gguf"),  # a GPU that is too small leaves the CPU
    ],
)
def test_each_machine_gets_its_model(total: float, cuda: float | None, model: str) -> None:
    found = list(recommend(int(total * GB), cuda is not None, int((cuda or 0) * GB)))
    assert found[0].model.name == model
    assert found[0].command == f"ondevice app --model {model}"
    assert found[0].why
    assert found[-1].model is SMOLLM2, "there is always one to fall back to"


@pytest.mark.parametrize(
    ("speed", "model"), [(142e9, "qwen3-1.7b-gguf"), (140e9, "qwen3-0.6b-gguf"), (43e9, "qwen2.5-coder-1.5b")]
)
def test_a_model_that_only_the_hub_has_reads_a_hundred_tokens_a_second(speed: float, model: str) -> None:
    assert next(recommend(16 * GB, False, cpu_speed=speed)).model.name == model


def test_on_a_cpu_the_hubs_models_come_before_those_that_are_had_without_it() -> None:
    names = [one.model.name for one in recommend(16 * GB, False)]
    assert names == ["qwen3-1.7b-gguf", "qwen3-0.6b-gguf", "qwen2.5-coder-1.5b", "qwen2.5-coder-0.5b", "smollm2-135m"]
    assert [one.needs_hub for one in recommend(16 * GB, False)] == [True, True, False, False, False]


def test_twelve_gigabytes_take_the_larger_model_in_four_bits() -> None:
    found = next(recommend(32 * GB, True, int(12.9 * GB)))
    assert found.command == "ondevice app --model qwen3-8b --quantization 4bit"
    assert "6.8 GB in 4 bits" in found.why


@pytest.mark.parametrize("row", DEVICE_CLASSES[:-1], ids=lambda row: row.label)
def test_weights_leave_room_for_the_document(row) -> None:
    assert CATALOGUE[row.model.name] is row.model
    assert row.weight_bytes < 0.8 * row.min_memory_bytes


def test_bytes_follow_from_the_parameters() -> None:
    row = CATALOGUE["qwen3-8b"]
    assert row.weight_bytes(2) == 16_381_470_720
    assert row.num_embedding_parameters * 2 < row.four_bit_bytes < row.weight_bytes(1)


def test_recommendation_reads_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement, "total_memory_bytes", lambda: 8 * GB)
    monkeypatch.setattr(placement.torch, "get_num_threads", lambda: 64)
    assert next(recommendations_for(torch.device("cpu"))).model.name == "qwen3-1.7b-gguf"
    monkeypatch.setattr(placement.torch, "get_num_threads", lambda: 0)
    assert next(recommendations_for(torch.device("cpu"))).model.name == "qwen2.5-coder-1.5b"


@pytest.mark.parametrize(("free", "offered"), [(3 * GB, "qwen3-1.7b-gguf"), (GB, "qwen3-0.6b-gguf"), (GB // 10, "")])
def test_what_does_not_fit_is_not_recommended(free: int, offered: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement, "total_memory_bytes", lambda: 8 * GB)
    monkeypatch.setattr(placement.torch, "get_num_threads", lambda: 64)
    monkeypatch.setattr(placement, "free_memory_bytes", lambda device: free)
    with pytest.raises(ModelError) as refused:
        placement.require_memory(4 * GB, torch.device("cpu"), "stored")
    assert (f"--model {offered}`" in str(refused.value)) if offered else ("--model" not in str(refused.value))
