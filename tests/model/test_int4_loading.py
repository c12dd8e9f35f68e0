"""Models in four bits for a GPU, loaded onto the CPU: their products there have the same weights."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from ondevice.kernels.int4 import Int4Rows, suits_int4, widened
from ondevice.kernels.rounding import quantize_int4
from torch import nn

from ondevice.model.decoder import Decoder
from ondevice.model.families import FAMILIES
from ondevice.model.loading import form
from ondevice.model.loading.checkpoint import inspect
from ondevice.model.loading.gguf_blocks import dequantize_rows, int4_rows
from ondevice.model.loading.gguf_model import inspect_gguf, load_gguf
from ondevice.model.loading.gguf_packed import Int4Store
from ondevice.model.loading.load import load_model, outline_model
from ondevice.model.loading.packed_checkpoint import int4_checkpoint_bytes, load_int4
from ondevice.model.packed_modules import PackedLinear
from ondevice.model.token_graph import TokenGraph, suits
from ondevice_bench.speed.quantized import packed_bytes
from tests.builders.gguf_files import write_gguf
from tests.builders.models import save_checkpoint, tiny_model

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
IDS = torch.randint(3, 250, (1, 40), generator=torch.Generator().manual_seed(0))


def silent(fraction: float) -> None:
    pass


def rounded(model: nn.Module) -> nn.Module:
    for name, module in model.named_modules():
        is_linear = type(module) is nn.Linear and name != "lm_head"
        if is_linear and suits_int4(module.out_features, module.in_features):
            (rows,) = quantize_int4(module.weight.detach()).parts
            assert isinstance(rows, Int4Rows)
            module.weight = nn.Parameter(widened(rows))
        for part in ("gate_up_proj", "down_proj"):
            if isinstance(weights := getattr(module, part, None), nn.Parameter):  # of experts
                of_all = weights.transpose(1, 2) if module.is_transposed else weights
                exact = torch.stack([widened(quantize_int4(one).parts[0]) for one in of_all])  # type: ignore[arg-type]
                weights.copy_(exact.transpose(1, 2) if module.is_transposed else exact)
    return model


@pytest.mark.parametrize("family", FAMILIES)
@torch.inference_mode()
def test_every_family_computes_with_weights_of_four_bits(tmp_path: Path, family: str) -> None:
    checkpoint = inspect(save_checkpoint(tiny_model(family, dtype=torch.bfloat16), tmp_path / "tiny"))
    fractions: list[float] = []
    model = load_int4(checkpoint, CPU, fractions.append)
    assert fractions[-1] == 1.0
    expected = rounded(tiny_model(family, dtype=torch.bfloat16)).float()(IDS).logits
    own = model(IDS).logits  # transformers' own pass, before and after its modules share weights
    decoder = Decoder(model)
    has_experts = any(layer.experts is not None for layer in decoder.parts.all_layers)
    has_network = family != "gpt_oss"  # beside its experts
    assert all(len(layer.linears) == (4 if has_network else 2) for layer in decoder.parts.layers)
    for logits in (
        own,
        model(IDS).logits,
        decoder.head.logits(decoder.forward(IDS, decoder.new_pot(64)).hidden_states),
    ):
        # In bfloat16 a token may go to another expert.
        assert (logits.float() - expected).norm() < (0.3 if has_experts else 0.08) * expected.norm()
    again = Decoder(model)  # over the same weights
    assert again.parts.layers[0].linears["qkv"].weight is decoder.parts.layers[0].linears["qkv"].weight
    held = packed_bytes(model) + sum(weight.nbytes for weight in model.parameters())
    assert held == pytest.approx(int4_checkpoint_bytes(checkpoint.shapes), rel=0.001)


def test_a_tied_head_is_the_embedding(tmp_path: Path) -> None:
    tied = tiny_model("llama", dtype=torch.bfloat16, tie_word_embeddings=True)
    checkpoint = inspect(save_checkpoint(tied, tmp_path / "tiny"))
    model = load_int4(checkpoint, CPU, silent)
    assert model.lm_head.weight is model.model.embed_tokens.weight


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q4_K"])
def test_a_second_rounding_costs_less_than_rounding_weights_to_bfloat16(kind: str) -> None:
    import numpy as np
    from gguf import GGMLQuantizationType
    from gguf.quants import quantize

    number, columns = GGMLQuantizationType[kind], 512
    if kind == "Q4_K":  # the package cannot write it
        raw = np.random.default_rng(0).integers(0, 256, (64, 2, 144), dtype=np.uint8)
        raw[..., :4] = np.random.default_rng(1).uniform(1e-3, 1e-2, (64, 2, 2)).astype(np.float16).view(np.uint8)
        raw = raw.reshape(64, -1)
    else:
        raw = quantize(np.random.default_rng(0).standard_normal((64, columns)).astype(np.float32), number)
    data = torch.from_numpy(raw)
    exact = dequantize_rows(data, number, columns)
    (rows,) = int4_rows(data, number, columns).parts
    assert isinstance(rows, Int4Rows)
    error = (widened(rows).float() - exact).norm() / exact.norm()
    in_bfloat16 = (exact.to(torch.bfloat16).float() - exact).norm() / exact.norm()
    assert error < 2.5 * in_bfloat16
    assert error < 4e-3


@pytest.mark.parametrize(
    ("architecture", "kinds", "bias"),
    [("llama", ("Q4_1",), False), ("qwen2", ("Q4_0", "Q4_0", "Q8_0", "Q4_1"), True), ("qwen2", ("Q8_0",), True)],
)
@torch.inference_mode()
def test_a_gguf_file_is_used_as_it_is_stored(
    tmp_path: Path, architecture: str, kinds: tuple[str, ...], bias: bool
) -> None:
    path = write_gguf(tmp_path / "tiny.gguf", architecture=architecture, kinds=kinds, bias=bias)
    expected = load_model(str(path), device="cpu", quantization="none").model(IDS).logits
    model, tokenizer = load_gguf(path, inspect_gguf(path), lambda stage, fraction: None, Int4Store(CPU))
    model.eval().requires_grad_(False)
    assert tokenizer.backend_tokenizer.get_vocab_size() == model.config.vocab_size
    assert model.lm_head.weight.data_ptr() == model.model.embed_tokens.weight.data_ptr()
    packed = [module for module in model.modules() if isinstance(module, PackedLinear)]
    assert bool(packed) == (kinds != ("Q8_0",))
    held = packed_bytes(model) + sum(weight.nbytes for weight in model.parameters())
    assert held == pytest.approx(inspect_gguf(path).int4_bytes, rel=0.01)
    decoder = Decoder(model)
    assert decoder.dtype == torch.bfloat16
    pot = decoder.new_pot(64)
    logits = decoder.head.logits(decoder.forward(IDS, pot).hidden_states)
    assert (logits.float() - expected).norm() < 0.05 * expected.norm()
    assert (model(IDS).logits.float() - expected).norm() < 0.05 * expected.norm()
    losses = decoder.head.token_loss(decoder.forward(IDS, decoder.new_pot(64)).hidden_states[:, :-1], IDS[:, 1:])
    assert bool(losses.isfinite().all())
    # What a GPU records takes projections of mixed types, too.
    assert suits(decoder.parts, decoder._rotary)
    graph = TokenGraph(decoder.parts, decoder._rotary, records=False)
    other = decoder.new_pot(64)
    decoder.forward(IDS, other)
    one, two = graph.run(IDS[:, :1], other), decoder.forward(IDS[:, :1], pot).hidden_states
    assert (one - two).norm() < 0.03 * two.norm()


def test_what_is_taken_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = inspect(save_checkpoint(tiny_model("llama"), tmp_path / "tiny"))
    summary = inspect_gguf(write_gguf(tmp_path / "tiny.gguf"))
    bfloat16, float16 = torch.bfloat16, torch.float16
    four = form.form_of(checkpoint, bfloat16, CUDA, "4bit")
    assert (four.weights, four.is_int4, four.bits) == ("4bit", True, None)
    assert four.num_bytes < form.form_of(checkpoint, bfloat16, CUDA, "none").num_bytes
    stored = form.form_of_file(summary, bfloat16, CUDA, "auto")
    assert (stored.weights, stored.is_int4, stored.num_bytes) == ("stored", True, summary.int4_bytes)
    others = [
        form.form_of(checkpoint, float16, CUDA, "4bit"),
        form.form_of(checkpoint, bfloat16, CUDA, "8bit"),
        form.form_of(checkpoint, bfloat16, CUDA, "auto"),
        form.form_of(checkpoint, torch.float32, CPU, "4bit"),
        form.form_of_file(summary, float16, CUDA, "auto"),
        form.form_of_file(summary, bfloat16, CUDA, "none"),
        form.form_of_file(summary, torch.float32, CPU, "auto"),
    ]
    assert not any(one.is_int4 for one in others)
    # A GPU that is there is asked.
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(form, "lacks_int4", lambda device: "the driver is too old")
    assert not form.form_of(checkpoint, bfloat16, CUDA, "4bit").is_int4
    monkeypatch.setattr(form, "lacks_int4", lambda device: "")
    assert form.form_of(checkpoint, bfloat16, CUDA, "4bit").is_int4


@pytest.mark.parametrize("name", ["qwen2.5-coder-1.5b", "qwen3-8b"])
def test_a_plan_for_a_gpu_that_is_not_here_reckons_with_four_bits(name: str) -> None:
    wide = outline_model(name, CUDA, dtype="bfloat16", quantization="none")
    four = outline_model(name, CUDA, dtype="bfloat16", quantization="auto" if "coder" in name else "4bit")
    assert four.quantization == ("stored" if "coder" in name else "4bit")
    assert four.weight_bytes < 0.6 * wide.weight_bytes
    assert four.fingerprint != wide.fingerprint
