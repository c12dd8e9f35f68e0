"""A safetensors folder whose weights are rounded while they are read: every family against its own float32 model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from ondevice.kernels.packed import unpack
from ondevice.kernels.rounding import quantize
from safetensors.torch import load_file, save_file
from torch import nn

from ondevice.errors import ModelError
from ondevice.model.decoder import Decoder
from ondevice.model.families import FAMILIES
from ondevice.model.loading import placement
from ondevice.model.loading.checkpoint import inspect
from ondevice.model.loading.load import load_model
from ondevice.model.loading.packed_checkpoint import rounded_bytes
from ondevice.model.packed_modules import PackedEmbedding, PackedLinear
from ondevice_bench.speed.quantized import packed_bytes
from tests.builders.grids import slow
from tests.builders.models import save_checkpoint, tiny_model

IDS = torch.randint(3, 250, (1, 40), generator=torch.Generator().manual_seed(0))
FORMS = ("8bit", "4bit")
CASES = [("llama", "8bit"), ("llama", "4bit"), *[slow(family, form) for family in list(FAMILIES)[1:] for form in FORMS]]

# A delta rule stores differences, in which rounding weighs more; and it may send a token to another expert.
_ERRORS = {"qwen3_5_text": 0.1, "gpt_oss": 0.2, "granitemoehybrid": 0.2}


def rounded(model: nn.Module, bits: int) -> nn.Module:
    """The model, its products with weights that were rounded and unpacked again."""
    for name, module in model.named_modules():
        if type(module) is nn.Linear and module.in_features % 32 == 0:
            weight = unpack(quantize(module.weight.detach(), 8 if name == "lm_head" else bits))  # type: ignore[arg-type]
            module.weight = nn.Parameter(weight)
        for part in ("gate_up_proj", "down_proj"):
            if isinstance(weights := getattr(module, part, None), nn.Parameter):  # of experts, (experts, out, in)
                of_all = weights.transpose(1, 2) if module.is_transposed else weights
                exact = torch.stack([unpack(quantize(one.detach(), bits)) for one in of_all])  # type: ignore[arg-type]
                weights.copy_(exact.transpose(1, 2) if module.is_transposed else exact)
    return model


@pytest.mark.parametrize(("family", "form"), CASES)
@torch.inference_mode()
def test_every_family_computes_with_rounded_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, family: str, form: str
) -> None:
    folder = save_checkpoint(tiny_model(family), tmp_path / "tiny")
    loaded = load_model(str(folder), device="cpu", quantization=form)  # type: ignore[arg-type]
    assert loaded.quantization == form
    expected = rounded(tiny_model(family), 8 if form == "8bit" else 4)(IDS).logits
    decoder = Decoder(loaded.model)
    for activations, error in (("float32", 1e-4), ("rounded", _ERRORS.get(family, 0.05))):
        monkeypatch.setenv("KERNELS_PACKED", activations)
        logits = decoder.head.logits(decoder.forward(IDS, decoder.new_pot(64)).hidden_states)
        assert (logits - expected).norm() < error * expected.norm()
        assert (loaded.model(IDS).logits - expected).norm() < error * expected.norm(), "transformers' own pass"
    assert packed_bytes(loaded.model) > 0
    assert all(weight.device.type == "cpu" for weight in loaded.model.parameters())
    assert loaded.model.generation_config.eos_token_id == tiny_model(family).generation_config.eos_token_id


def test_a_tied_head_is_packed_and_the_embedding_stays_in_its_file(tmp_path: Path) -> None:
    folder = save_checkpoint(tiny_model("llama", tie_word_embeddings=True), tmp_path / "tiny")
    assert "lm_head.weight" not in inspect(folder).shapes
    model = load_model(str(folder), device="cpu", quantization="8bit").model
    assert isinstance(model.lm_head, PackedLinear)
    embedding = model.model.embed_tokens
    assert isinstance(embedding, PackedEmbedding)
    assert torch.equal(embedding(IDS), tiny_model("llama", tie_word_embeddings=True).model.embed_tokens(IDS))


@pytest.mark.parametrize("family", ["qwen2", "gpt_oss", "granitemoehybrid"])
def test_memory_is_as_forecast(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, family: str) -> None:
    folder = save_checkpoint(tiny_model(family), tmp_path / "tiny")
    checkpoint = inspect(folder)
    for bits, form in ((8, "8bit"), (4, "4bit")):
        expected = rounded_bytes(checkpoint, bits)  # type: ignore[arg-type]
        model = load_model(str(folder), device="cpu", quantization=form).model  # type: ignore[arg-type]
        held = packed_bytes(model) + sum(weight.nbytes for weight in model.parameters())
        assert held == pytest.approx(expected, rel=0.02)
    monkeypatch.setattr(placement, "free_memory_bytes", lambda device: rounded_bytes(checkpoint, 8) - 1)
    with pytest.raises(ModelError, match=r"are free on cpu.*engine\.quantization 4bit"):
        load_model(str(folder), device="cpu", quantization="8bit")
    load_model(str(folder), device="cpu", quantization="4bit")


def test_auto_rounds_large_models_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = save_checkpoint(tiny_model("llama"), tmp_path / "tiny")
    assert load_model(str(folder), device="cpu").quantization == "none"
    monkeypatch.setattr("ondevice.model.loading.form._LARGE", 1000)
    stages: list[tuple[str, float | None]] = []
    loaded = load_model(str(folder), device="cpu", on_progress=lambda *stage: stages.append(stage))
    assert loaded.quantization == "8bit"
    assert stages[0][0] == "Loading tiny, weights in 8 bits"
    assert stages[-1][1] == 1.0
    assert load_model(str(folder), device="cpu", quantization="none").quantization == "none"
    assert load_model(str(folder), device="cpu", dtype="bfloat16").quantization == "none"


def test_what_is_wrong_with_the_weights_is_said(tmp_path: Path) -> None:
    folder = save_checkpoint(tiny_model("llama"), tmp_path / "tiny")
    path, name = folder / "model.safetensors", "model.layers.0.mlp.up_proj.weight"
    weights = load_file(path)
    save_file(weights | {name: weights[name][:-1].clone()}, path, {"format": "pt"})
    with pytest.raises(ModelError, match=rf"{name} has the shape \[\d+, \d+\] instead of \[\d+, \d+\]"):
        load_model(str(folder), device="cpu", quantization="8bit")
    del weights[name]
    save_file(weights, path, {"format": "pt"})
    with pytest.raises(ModelError, match=f"1 weights are missing, the first is {name}"):
        load_model(str(folder), device="cpu", quantization="8bit")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"hidden_act": "no such"}))
    with pytest.raises(ModelError, match="transformers cannot load the model"):
        load_model(str(folder), device="cpu", quantization="8bit")
