"""Models without their weights: the same sizes, tokenizer and fingerprint as with them, and no memory."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from math import prod
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.modules.module import register_module_parameter_registration_hook

from ondevice.config import EngineConfig
from ondevice.errors import ModelError
from ondevice.model.loading._transformers import empty_model, transformers
from ondevice.model.loading.catalogue import CATALOGUE, CatalogueModel
from ondevice.model.loading.load import load_model, outline_model
from ondevice.model.loading.outline import row_outline
from ondevice.model.packed_modules import PackedLinear
from ondevice.session.engine import Engine
from ondevice.session.sizing import sized
from tests.builders.gguf_files import write_gguf
from tests.builders.models import save_checkpoint, tiny_model

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


@pytest.fixture
def nothing_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONDEVICE_CACHE", str(tmp_path))
    monkeypatch.setattr("ondevice.model.loading.hub.cached", lambda repository: None)


@pytest.mark.parametrize("row", CATALOGUE.values(), ids=lambda row: row.name)
def test_the_sizes_of_a_row_come_to_all_its_parameters(row: CatalogueModel) -> None:
    model, checkpoint = row_outline(row, torch.bfloat16)
    assert sum(map(prod, checkpoint.shapes.values())) == row.num_parameters
    assert checkpoint.weight_bytes(2, "none") == row.weight_bytes(2)
    assert {parameter.device.type for parameter in model.parameters()} == {"meta"}


def test_what_another_thread_makes_meanwhile_keeps_its_memory_and_type(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    build = transformers.AutoModelForCausalLM.from_config

    def beside(*args: Any, **kwargs: Any) -> Any:
        with ThreadPoolExecutor(1) as pool:
            made.append(pool.submit(torch.nn.Linear, 2, 2).result())
        return build(*args, **kwargs)

    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_config", beside)
    model = empty_model(tiny_model("llama").config, torch.bfloat16)
    assert {(parameter.device.type, parameter.dtype) for parameter in model.parameters()} == {("meta", torch.bfloat16)}
    assert {(parameter.device.type, parameter.dtype) for parameter in made[0].parameters()} == {("cpu", torch.float32)}
    assert torch.nn.Linear(2, 2).weight.device.type == "cpu"


def test_one_thread_begins_to_outline_a_model_in_the_midst_of_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The list of models sizes up all of them while another one is being used."""
    begun, may_end, pool, beside = threading.Event(), threading.Event(), ThreadPoolExecutor(1), list[Any]()
    hooks = list[Any]()

    class Weight(torch.nn.Parameter):
        @property
        def shape(self) -> torch.Size:  # read for the first model
            if not beside:
                beside.append(pool.submit(empty_model, "second"))
                assert begun.wait(30)
            return torch.Size((2, 2))

    def build(config: str, **options: Any) -> Any:
        model = torch.nn.Module()
        if config == "second":
            begun.set()
            assert may_end.wait(30)
        hooks.append(register_module_parameter_registration_hook(lambda *_: None))  # some library may have one
        model.weight = torch.nn.Parameter(torch.zeros(2, 2)) if config == "second" else Weight(torch.zeros(2, 2))
        return model

    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_config", build)
    first = empty_model("first")
    may_end.set()
    assert first.weight.device.type == beside[0].result().weight.device.type == "meta"
    pool.shutdown()
    for hook in hooks:
        hook.remove()


@pytest.mark.parametrize("family", ["llama", "qwen3", "phi3", "gemma2"])
@pytest.mark.parametrize("quantization", ["auto", "8bit"])
def test_an_outline_is_the_model_but_for_its_weights(family: str, quantization: str, tmp_path: Path) -> None:
    folder = str(save_checkpoint(tiny_model(family), tmp_path / "tiny"))
    loaded = load_model(folder, device="cpu", quantization=quantization)  # type: ignore[arg-type]
    outlined = outline_model(folder, CPU, quantization=quantization)  # type: ignore[arg-type]
    assert {parameter.device.type for parameter in outlined.model.parameters()} == {"meta"}
    for name in ("name", "dtype", "quantization", "fingerprint", "max_positions", "source", "weight_bytes"):
        assert getattr(outlined, name) == getattr(loaded, name), name
    assert outlined.weight_bytes > 0
    assert outlined.tokenizer.fingerprint == loaded.tokenizer.fingerprint
    plans = [sized(Engine(one, EngineConfig()).plan(), None, 10**9) for one in (outlined, loaded)]
    assert plans[0].pot_bytes() == plans[1].pot_bytes()
    assert plans[0].tier_bytes() == plans[1].tier_bytes()


def test_a_gguf_file_is_outlined_as_it_would_be_loaded(tmp_path: Path) -> None:
    path = str(write_gguf(tmp_path / "tiny.gguf"))
    loaded, outlined = load_model(path, device="cpu"), outline_model(path, CPU)
    assert outlined.quantization == loaded.quantization == "stored"
    assert outlined.weight_bytes == loaded.weight_bytes
    assert outlined.tokenizer.fingerprint == loaded.tokenizer.fingerprint
    on_gpu, unpacked = outline_model(path, CUDA), outline_model(path, CUDA, quantization="none")
    assert (on_gpu.quantization, on_gpu.dtype) == ("stored", torch.bfloat16)
    assert (unpacked.quantization, unpacked.dtype) == ("none", torch.bfloat16)
    assert loaded.weight_bytes < on_gpu.weight_bytes < unpacked.weight_bytes


@pytest.mark.usefixtures("nothing_here")
def test_a_model_of_the_catalogue_need_not_be_here() -> None:
    outlined = outline_model("qwen3-1.7b", CUDA)
    assert (outlined.dtype, outlined.quantization) == (torch.bfloat16, "none")
    assert outlined.weight_bytes == CATALOGUE["qwen3-1.7b"].weight_bytes(2)
    assert outlined.max_positions == CATALOGUE["qwen3-1.7b"].window
    rounded = outline_model("qwen3-1.7b", CPU)
    assert rounded.quantization == "8bit"
    assert rounded.weight_bytes == pytest.approx(CATALOGUE["qwen3-1.7b"].num_parameters * 8.5 / 8, rel=0.01)
    stored = outline_model("qwen2.5-coder-0.5b", CPU)
    assert stored.quantization == "stored"
    assert stored.weight_bytes == int(1.1 * CATALOGUE["qwen2.5-coder-0.5b"].num_bytes)
    wide = outline_model("qwen2.5-coder-0.5b", CUDA, quantization="none").weight_bytes
    assert wide == CATALOGUE["qwen2.5-coder-0.5b"].weight_bytes(2)
    assert 0.5 * wide < outline_model("qwen2.5-coder-0.5b", CUDA).weight_bytes < 0.7 * wide


@pytest.mark.usefixtures("nothing_here")
def test_nothing_is_fetched_for_an_outline() -> None:
    with pytest.raises(ModelError, match="not on this machine"):
        outline_model("somebody/something", CPU)


def test_packed_weights_take_what_was_reckoned(tmp_path: Path) -> None:
    loaded = load_model(str(write_gguf(tmp_path / "tiny.gguf")), device="cpu")
    packed = sum(one.weight.nbytes for one in loaded.model.modules() if isinstance(one, PackedLinear))
    vectors = sum(one.nbytes for one in loaded.model.parameters())
    assert packed <= loaded.weight_bytes <= 1.05 * (packed + vectors)
