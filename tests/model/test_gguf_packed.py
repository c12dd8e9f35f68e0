"""A GGUF with its weights as they are stored: every type against the gguf package, a model against the unpacked one."""

from __future__ import annotations

import inspect
from pathlib import Path

import numpy as np
import pytest
import torch
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize
from ondevice.kernels.packed import unpack

from ondevice.model.decoder import Decoder
from ondevice.model.loading.gguf_blocks import BLOCK_TYPES, dequantize_rows, pack_rows
from ondevice.model.loading.load import LoadedModel, load_model, outline_model
from ondevice.model.packed_modules import PackedEmbedding, PackedLinear
from ondevice_bench.speed.quantized import packed_bytes
from tests.builders.gguf_files import write_gguf
from tests.builders.grids import slow
from tests.builders.models import logits_of

# Where the float16 numbers of a block are; any other bytes are valid.
FACTORS = {"Q4_0": (0,), "Q4_1": (0, 2), "Q5_0": (0,), "Q5_1": (0, 2), "Q8_0": (0,)}
FACTORS |= {"Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,)}


@pytest.mark.parametrize("name", FACTORS)
def test_every_type_is_read_as_the_gguf_package_reads_it(name: str) -> None:
    kind = GGMLQuantizationType[name]
    num_values, num_bytes = GGML_QUANT_SIZES[kind]
    assert (BLOCK_TYPES[kind].num_values, BLOCK_TYPES[kind].num_bytes) == (num_values, num_bytes)
    rng, rows, columns = np.random.default_rng(0), 40, 2 * 256
    raw = rng.integers(0, 256, (rows, columns // num_values, num_bytes), dtype=np.uint8)
    for at in FACTORS[name]:
        factors = rng.uniform(0.001, 0.01, (*raw.shape[:2], 1)).astype(np.float16)
        raw[..., at : at + 2] = factors.view(np.uint8)
    raw = raw.reshape(rows, -1)
    expected, data = torch.from_numpy(dequantize(raw, kind)), torch.from_numpy(raw)
    assert torch.allclose(dequantize_rows(data, kind, columns), expected, rtol=1e-6, atol=1e-7)
    packed = unpack(pack_rows(data, kind, columns))
    assert torch.equal(packed, dequantize_rows(data, kind, columns)), "nothing is rounded again"


CASES = [  # whose kernels are compiled for seconds each
    ("llama", ("Q4_1",), False),
    slow("llama", ("Q4_0", "Q8_0", "Q5_1"), False),
    slow("qwen2", ("Q5_0", "Q5_0", "Q8_0", "Q4_0"), True),
]


@pytest.mark.parametrize(("architecture", "kinds", "bias"), CASES)
def test_logits_are_those_of_the_unpacked_model(
    tmp_path: Path, architecture: str, kinds: tuple[str, ...], bias: bool
) -> None:
    path = str(write_gguf(tmp_path / "tiny.gguf", architecture=architecture, kinds=kinds, bias=bias))
    packed = load_model(path, device="cpu")
    unpacked = load_model(path, device="cpu", quantization="none")
    assert (packed.quantization, unpacked.quantization) == ("stored", "none")
    assert packed.fingerprint != unpacked.fingerprint
    ids = torch.randint(3, 250, (1, 40), generator=torch.Generator().manual_seed(0))
    expected = unpacked.model(ids).logits
    decoder, exact = Decoder(packed.model), Decoder(unpacked.model)
    pot, exact_pot = decoder.new_pot(64), exact.new_pot(64)
    logits = decoder.head.logits(decoder.forward(ids, pot).hidden_states)
    assert (logits - expected).norm() < 0.03 * expected.norm()
    exact.forward(ids, exact_pot)
    one = decoder.forward(ids[:, :1], pot).hidden_states
    expected_one = exact.forward(ids[:, :1], exact_pot).hidden_states
    assert (one - expected_one).norm() < 0.03 * expected_one.norm()
    loss, expected_loss = decoder.head.token_loss(one, ids[:, 1:2]), exact.head.token_loss(expected_one, ids[:, 1:2])
    assert torch.allclose(loss, expected_loss, atol=0.1)


def test_float32_products_are_exactly_those_of_the_unpacked_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So nothing but the rounding of activations tells the two apart."""
    path = str(write_gguf(tmp_path / "tiny.gguf", kinds=("Q4_0", "Q5_0", "Q8_0")))
    monkeypatch.setenv("KERNELS_PACKED", "float32")
    ids = torch.randint(3, 250, (1, 40))
    packed, unpacked = (load_model(path, device="cpu", quantization=x).model for x in ("auto", "none"))
    logits, expected = logits_of(packed, ids), unpacked(ids).logits
    assert torch.allclose(logits, expected, atol=1e-4)


def test_tokenizer_and_config_are_those_that_transformers_reads(tmp_path: Path) -> None:
    for architecture, bias in (("llama", False), ("qwen2", True)):
        path = str(write_gguf(tmp_path / f"{architecture}.gguf", architecture=architecture, bias=bias))
        packed, unpacked = (load_model(path, device="cpu", quantization=x) for x in ("auto", "none"))
        text = "He said  12 things:\n\n\tit's naïve, don't 345 \n"
        assert packed.tokenizer.encode(text)[0].tolist() == unpacked.tokenizer.encode(text)[0].tolist()
        assert packed.tokenizer.eos_ids == unpacked.tokenizer.eos_ids
        assert packed.tokenizer.control_ids == unpacked.tokenizer.control_ids
        assert packed.tokenizer.has_vocabulary_of(unpacked.tokenizer)
        outline = outline_model(path, torch.device("cpu"))
        config = outline.model.config
        assert _config_of(outline) == _config_of(unpacked)
        assert all(getattr(config, name) == value for name, value in vars(packed.model.config).items())


def _config_of(loaded: LoadedModel) -> dict[str, object]:
    config = loaded.model.config.to_dict()
    config["rms_norm_eps"] = float(np.float32(config["rms_norm_eps"]))
    names = (
        "_name_or_path",
        "architectures",
        "dtype",
        "tie_word_embeddings",
        "quantization_config",
        "head_dim",
        "unk_token_id",
    )
    return {key: value for key, value in config.items() if key not in (*names, "attention_bias", "mlp_bias")}


def test_memory_holds_the_packed_weights_alone(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "tiny.gguf")
    model = load_model(str(path), device="cpu").model
    Decoder(model)  # puts projections together
    assert isinstance(model.model.embed_tokens, PackedEmbedding)
    assert isinstance(inspect.getclosurevars(model.model.embed_tokens._gather).nonlocals["data"].base, np.memmap)
    num_weights = sum(m.out_features * m.in_features for m in model.modules() if isinstance(m, PackedLinear))
    assert packed_bytes(model) < 1.2 * num_weights
    assert sum(parameter.nbytes for parameter in model.parameters()) < 10_000


def test_what_cannot_be_packed_is_unpacked(tmp_path: Path) -> None:
    path = str(write_gguf(tmp_path / "tiny.gguf"))
    assert load_model(path, device="cpu", dtype="bfloat16").quantization == "none"
