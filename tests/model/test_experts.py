"""Models with experts, sinks and multipliers: every path of attention, every variant, and weights in MXFP4."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from ondevice.kernels.mxfp4 import mxfp4_weights
from safetensors.torch import load_file, save_file
from torch import Tensor

from ondevice.errors import ModelError
from ondevice.model.decoder import Decoder
from ondevice.model.families.parts import WindowLayer
from ondevice.model.loading.checkpoint import inspect
from ondevice.model.loading.load import load_model
from ondevice.model.loading.packed_checkpoint import load_int4, rounded_bytes
from ondevice.model.packed_modules import PackedLinear
from ondevice_bench.speed.quantized import packed_bytes
from tests.builders.models import save_checkpoint, tiny_loaded, tiny_model

IDS = torch.randint(0, 256, (1, 60), generator=torch.Generator().manual_seed(3))
ATTENDING = {"layer_types": ["full_attention"] * 3, "num_hidden_layers": 3}


def passes(decoder: Decoder, pot: Any, *sizes: int) -> Tensor:
    """Logits of `IDS`, read in passes of these sizes."""
    parts = IDS.split(list(sizes), dim=1)
    return torch.cat([decoder.head.logits(decoder.forward(part, pot).hidden_states) for part in parts], dim=1)


@pytest.mark.parametrize(
    "fields",
    [
        {"num_local_experts": 0},
        {"num_local_experts": 0, **ATTENDING},
        {"position_embedding_type": "rope", **ATTENDING},
        {"mamba_conv_bias": False, "mamba_proj_bias": True, "time_step_limit": (0.1, 0.5), "attention_bias": True},
    ],
)
def test_every_variant_of_granite_is_that_of_transformers(fields: dict[str, Any]) -> None:
    model = tiny_model("granitemoehybrid", **fields)
    decoder = Decoder(model)
    logits = passes(decoder, decoder.new_pot(64), 37, 23)
    assert (logits - model(IDS).logits).abs().max() <= 1e-4


def test_a_model_that_never_attends_is_refused() -> None:
    with pytest.raises(ModelError, match="attends to what a pot holds"):
        Decoder(tiny_model("granitemoehybrid", layer_types=["linear_attention"] * 4))


def test_observed_attention_is_that_of_transformers_without_the_share_of_sinks() -> None:
    model = tiny_model("gpt_oss")
    decoder = Decoder(model)
    theirs = [model(IDS, output_attentions=True).attentions[layer][:, :, -8:] for layer in (1, 3)]
    found = decoder.forward(IDS, decoder.new_pot(64), num_observed=8).mass
    peaks = decoder.forward(IDS, decoder.new_pot(64), num_observed=8, observes_peak=True).mass
    for mass, peak, paid in zip(found, peaks, theirs, strict=True):
        grouped = paid.unflatten(1, (2, 2))
        torch.testing.assert_close(mass, grouped.sum((2, 3)))
        torch.testing.assert_close(peak, grouped.amax((2, 3)))
        assert (mass.sum(-1) < 16 * 0.99).all(), "sinks take their share"
    (one, _) = decoder.forward(IDS[:, :1], decoder.new_pot(4), num_observed=1).mass
    assert (one < 2 * 0.99).all()


@pytest.mark.parametrize("sliding_window", [24, 200])
@pytest.mark.parametrize("kv_dtype", ["model", "int8"])
@pytest.mark.parametrize("per_head", [False, True])
@pytest.mark.parametrize("key_rotation", ["stored", "on-read", "half-cache"])
def test_every_kind_of_pot_knows_sinks(sliding_window: int, kv_dtype: Any, per_head: bool, key_rotation: Any) -> None:
    model = tiny_model("gpt_oss", sliding_window=sliding_window)
    decoder = Decoder(model)
    capacities = (64, 72, 80, 66) if per_head else None
    pot = decoder.allocate(decoder.pot_shape(64, 1, key_rotation, capacities, kv_dtype))
    logits, expected = passes(decoder, pot, 55, 1, 1, 1, 2), model(IDS).logits
    if kv_dtype == "model":
        assert (logits - expected).abs().max() <= 1e-4
    else:
        assert (logits - expected).norm() <= 0.03 * expected.norm()
    without = Decoder(tiny_model("gpt_oss", sliding_window=sliding_window))
    for layer in without.parts.all_layers:
        assert layer.sinks is not None  # type: ignore[attr-defined]
        layer.sinks.fill_(-1e9)  # type: ignore[attr-defined]
    assert (passes(without, without.new_pot(64), 60) - expected).norm() > 0.1 * expected.norm()


def test_a_model_whose_every_layer_attends_to_all_has_sinks_everywhere() -> None:
    model = tiny_model("gpt_oss", **ATTENDING)
    decoder = Decoder(model)
    assert not decoder.parts.has_state
    assert not any(isinstance(layer, WindowLayer) for layer in decoder.parts.all_layers)
    assert (passes(decoder, decoder.new_pot(64), 37, 22, 1) - model(IDS).logits).abs().max() <= 1e-4


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A folder whose experts are stored in MXFP4, and the model that it holds."""
    model, generator = tiny_model("gpt_oss"), torch.Generator().manual_seed(0)
    folder = save_checkpoint(model, tmp_path_factory.mktemp("mxfp4") / "tiny")
    path, config = folder / "model.safetensors", folder / "config.json"
    weights = load_file(path)
    for name, (experts, columns, rows) in {
        name: weight.shape for name, weight in weights.items() if name.endswith(("gate_up_proj", "down_proj"))
    }.items():
        blocks = torch.randint(0, 256, (experts, rows, columns // 32, 16), dtype=torch.uint8, generator=generator)
        scales = torch.randint(121, 125, blocks.shape[:3], dtype=torch.uint8, generator=generator)
        exact = torch.stack([mxfp4_weights(*one).T for one in zip(blocks, scales, strict=True)])
        del weights[name]
        weights |= {f"{name}_blocks": blocks, f"{name}_scales": scales}
        model.get_parameter(name).copy_(exact)
    save_file(weights, path, {"format": "pt"})
    quantized = {"quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": []}}
    config.write_text(json.dumps(json.loads(config.read_text()) | quantized))
    return folder, model


def test_experts_in_mxfp4_are_read_as_they_are(stored: tuple[Path, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    folder, model = stored
    expected = model(IDS).logits
    loaded = load_model(str(folder), device="cpu")
    assert (loaded.quantization, loaded.weight_bytes) == ("none", sum(w.nbytes for w in model.parameters()))
    decoder = Decoder(loaded.model)
    assert (passes(decoder, decoder.new_pot(64), 60) - expected).abs().max() <= 1e-4
    monkeypatch.setenv("KERNELS_PACKED", "float32")
    packed = load_model(str(folder), device="cpu", quantization="8bit").model
    decoder = Decoder(packed)
    assert (passes(decoder, decoder.new_pot(64), 60) - expected).norm() <= 0.15 * expected.norm()
    expert = packed.model.layers[0].mlp.experts.down[1]
    assert isinstance(expert, PackedLinear)
    own = model.model.layers[0].mlp.experts
    states = torch.randn(5, expert.in_features, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(expert(states), states @ own.down_proj[1] + own.down_proj_bias[1])
    held = packed_bytes(packed) + sum(weight.nbytes for weight in packed.parameters())
    assert held == pytest.approx(rounded_bytes(inspect(folder), 8), rel=0.02)
    int4 = load_int4(inspect(folder), torch.device("cpu"), lambda _: None)
    assert isinstance(int4.model.layers[0].mlp.experts.gate_up[0], PackedLinear)


def test_what_mxfp4_cannot_be_is_said(stored: tuple[Path, Any]) -> None:
    with pytest.raises(ModelError, match="MXFP4 cannot be rounded"):
        load_model(str(stored[0]), device="cpu", quantization="4bit", dtype="bfloat16")


def test_bytes_of_passes_count_both_halves_of_clamped_experts() -> None:
    layer = Decoder(tiny_loaded("gpt_oss").model).parts.layers[0]
    assert layer.intermediate_size == 2 * 192
    assert layer.linears.keys() == {"qkv", "out"}
