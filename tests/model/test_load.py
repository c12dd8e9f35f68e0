"""Folders, files and names: what loads, what is refused, and with which words."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import pickle
import shutil
from pathlib import Path
from typing import Any, Literal

import huggingface_hub
import pytest
import torch
from safetensors.torch import load_file, save_file

from ondevice.errors import ModelError, UnsafeModel
from ondevice.model.families import family_name
from ondevice.model.loading import placement
from ondevice.model.loading._transformers import transformers
from ondevice.model.loading.checkpoint import inspect
from ondevice.model.loading.load import load_model
from ondevice.model.loading.placement import choose_device, choose_dtype
from tests.builders.gguf_files import write_gguf
from tests.builders.models import (
    FAMILIES,
    STATEFUL,
    byte_backend,
    default_model,
    logits_of,
    save_checkpoint,
    tiny_loaded,
    tiny_model,
)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_checkpoint(tiny_model("llama"), tmp_path_factory.mktemp("saved") / "tiny-llama")


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    """A checkpoint of one's own, to break."""
    return Path(shutil.copytree(saved, tmp_path / "tiny-llama"))


def _edit_json(path: Path, **fields: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


@pytest.mark.parametrize("family", [*FAMILIES, *STATEFUL])
def test_every_family_comes_back_from_its_folder(family: str, tmp_path: Path) -> None:
    model = tiny_model(family, seed=3)
    loaded = load_model(str(save_checkpoint(model, tmp_path / family)), device="cpu")
    ids = torch.arange(40)[None]
    loaded.model.set_attn_implementation("eager")
    torch.testing.assert_close(loaded.model(ids).logits, model(ids).logits)
    assert (loaded.name, loaded.device, loaded.dtype) == (family, torch.device("cpu"), torch.float32)
    assert (loaded.max_positions, loaded.quantization, loaded.notice) == (512, "none", "")
    assert not loaded.model.training
    assert not any(parameter.requires_grad for parameter in loaded.model.parameters())
    assert loaded.tokenizer.decode(loaded.tokenizer.encode("héllo")[0]) == "héllo"


EYES = {
    "Qwen3_5": {"depth": 1, "hidden_size": 32, "intermediate_size": 32, "num_heads": 2, "out_hidden_size": 64},
    "Gemma3": {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2},
    "Gemma4": {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2},
    "Gemma4Unified": {},
    "Mistral3": {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2},
}


@pytest.mark.parametrize("quantization", ["none", "8bit"])
@pytest.mark.parametrize(
    ("seeing", "family"),
    [
        ("Qwen3_5", "qwen3_5_text"),
        ("Gemma3", "gemma3_text"),
        ("Gemma4", "gemma4_text"),
        ("Gemma4Unified", "gemma4_unified_text"),
        ("Mistral3", "ministral3"),
        ("Mistral3", "mistral"),
    ],
)
def test_of_a_model_that_sees_pictures_the_text_model_is_loaded(
    tmp_path: Path, seeing: str, family: str, quantization: Literal["none", "8bit"]
) -> None:
    text = tiny_model(family)
    fields = {"text_config": text.config.to_dict(), "tie_word_embeddings": text.config.tie_word_embeddings}
    config = getattr(transformers, f"{seeing}Config")(**fields, vision_config=EYES[seeing])
    model = getattr(transformers, f"{seeing}ForConditionalGeneration")(config)
    model.model.language_model.load_state_dict(text.model.state_dict())
    model.lm_head.load_state_dict(text.lm_head.state_dict())
    loaded, alone = (
        load_model(str(save_checkpoint(one, tmp_path / name)), device="cpu", quantization=quantization)
        for one, name in ((model, "seeing"), (text, "text"))
    )
    ids = torch.arange(40)[None]
    torch.testing.assert_close(logits_of(loaded.model, ids), logits_of(alone.model, ids))
    assert {name for name, _ in loaded.model.named_parameters()} == {name for name, _ in alone.model.named_parameters()}
    assert loaded.weight_bytes == alone.weight_bytes


def test_a_text_model_that_names_no_family_is_of_the_one_that_transformers_takes() -> None:
    for seeing in EYES:
        config = getattr(transformers, f"{seeing}Config")(text_config={}, vision_config=EYES[seeing])
        assert family_name({"model_type": config.model_type, "text_config": {}}) == config.text_config.model_type


@pytest.mark.parametrize("family", [*FAMILIES, *STATEFUL])
def test_tiny_models_are_seeded_and_not_flat(family: str) -> None:
    loaded, again, other = (tiny_loaded(family, seed=seed).model(torch.arange(50)[None]).logits for seed in (0, 0, 1))
    assert torch.equal(loaded, again)
    assert not torch.allclose(loaded, other)
    assert loaded.softmax(-1).amax(-1).mean() > 20 / 260


def test_fingerprint_follows_weights_type_and_configuration(saved: Path, folder: Path) -> None:
    first = load_model(str(saved), device="cpu").fingerprint
    assert load_model(str(folder), device="cpu").fingerprint == first
    assert load_model(str(folder), device="cpu", dtype="bfloat16").fingerprint != first
    weights = load_file(folder / "model.safetensors")
    weights["model.norm.weight"] += 1
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    changed = load_model(str(folder), device="cpu").fingerprint
    assert changed != first
    _edit_json(folder / "config.json", rms_norm_eps=1e-3)
    assert load_model(str(folder), device="cpu").fingerprint not in (first, changed)


def test_asked_type_is_used(saved: Path) -> None:
    loaded = load_model(str(saved), device="cpu", dtype="bfloat16")
    assert loaded.dtype == loaded.model.lm_head.weight.dtype == torch.bfloat16


class _Bomb:
    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.mkdir, (os.environ["ONDEVICE_TEST_BOMB"],)


@pytest.mark.parametrize("suffix", [".bin", ".pt", ".pth", ".pkl", ".ckpt"])
def test_pickled_weights_are_refused_unopened(
    folder: Path, tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONDEVICE_TEST_BOMB", str(tmp_path / "went-off"))
    (folder / "model.safetensors").unlink()
    path = folder / f"pytorch_model{suffix}"
    path.write_bytes(pickle.dumps(_Bomb()))
    for name in (folder, path):
        with pytest.raises(UnsafeModel, match="safe_serialization"):
            load_model(str(name))
    assert not (tmp_path / "went-off").exists()


def test_pickle_beside_safetensors_is_ignored(folder: Path) -> None:
    (folder / "pytorch_model.bin").write_bytes(b"not read")
    assert load_model(str(folder), device="cpu").name == "tiny-llama"


def test_code_of_the_author_is_never_run(folder: Path, tmp_path: Path) -> None:
    (folder / "modeling_own.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    auto_map = {"AutoConfig": "modeling_own.C", "AutoModelForCausalLM": "modeling_own.M"}
    _edit_json(folder / "config.json", auto_map=auto_map)
    assert load_model(str(folder), device="cpu").name == "tiny-llama"  # transformers' own Llama serves
    _edit_json(folder / "config.json", model_type="own-model")
    with pytest.raises(UnsafeModel, match="code of its own"):
        load_model(str(folder))
    assert not (tmp_path / "ran").exists()


def _with_config(**fields: Any) -> Any:
    return lambda folder: _edit_json(folder / "config.json", **fields)


def _write(name: str, content: bytes) -> Any:
    return lambda folder: (folder / name).write_bytes(content)


def _remove(name: str) -> Any:
    return lambda folder: (folder / name).unlink()


def _cut_weights(folder: Path) -> None:
    path = folder / "model.safetensors"
    os.truncate(path, path.stat().st_size - 1000)


def _drop_one_weight(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def _index(*names: str) -> Any:
    content = json.dumps({"weight_map": {f"weight{index}": name for index, name in enumerate(names)}})
    return _write("model.safetensors.index.json", content.encode())


@pytest.mark.parametrize(
    ("damage", "error", "words"),
    [
        (_remove("config.json"), ModelError, "config.json is missing"),
        (_write("config.json", b"{"), ModelError, "configuration cannot be read"),
        (_write("config.json", b"[]"), ModelError, "configuration cannot be read"),
        (_with_config(model_type="gpt2"), ModelError, "llama, mistral, qwen2, qwen3, phi3, gemma2"),
        (_with_config(quantization_config={"quant_method": "gptq"}), ModelError, "stored quantised by 'gptq'"),
        (_with_config(intermediate_size=100), ModelError, "cannot load the model"),
        (_remove("model.safetensors"), ModelError, "no weights in safetensors form"),
        (_cut_weights, ModelError, "damaged or incomplete"),
        (_write("model.safetensors", b"version https://git-lfs.github.com/spec/v1\n"), ModelError, "damaged or incomp"),
        (_write("model.safetensors", b""), ModelError, "damaged or incomplete"),
        (_drop_one_weight, ModelError, "1 weights are missing, the first is model.layers.1.mlp.up_proj.weight"),
        (_index("a-1-of-2.safetensors", "model.safetensors"), ModelError, "1 of 2 weight files are missing"),
        (_index("../../elsewhere.safetensors"), UnsafeModel, "not a safetensors file beside it"),
        (_index("pytorch_model-1-of-2.bin"), UnsafeModel, "pickle"),
        (_write("model.safetensors.index.json", b"{}"), ModelError, "list of weight files cannot be read"),
        (_remove("tokenizer.json"), ModelError, "no tokenizer"),
        (_write("tokenizer.json", b"{}"), ModelError, "tokenizer cannot be read"),
    ],
)
def test_broken_folder_is_said(folder: Path, damage: Any, error: type[ModelError], words: str) -> None:
    damage(folder)
    with pytest.raises(error) as caught:
        load_model(str(folder), device="cpu")
    assert words in str(caught.value)
    assert str(folder) in caught.value.where
    assert caught.value.fix


def test_adapter_is_told_from_a_model(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(ModelError, match="Merge it"):
        load_model(str(tmp_path))


@pytest.mark.parametrize("name", ["no-such-model", "./no/such/folder", "/no/such/file.gguf", "a b/c"])
def test_unknown_names_are_said(name: str) -> None:
    with pytest.raises(ModelError, match="no such model") as caught:
        load_model(name)
    assert caught.value.where == name


def test_single_weight_file_is_not_a_model(saved: Path) -> None:
    with pytest.raises(ModelError, match="Name the folder"):
        load_model(str(saved / "model.safetensors"))


def test_sharded_folder_loads(tmp_path: Path) -> None:
    model = tiny_model("qwen3")
    model.save_pretrained(tmp_path, max_shard_size="100KB")
    byte_backend().save_pretrained(tmp_path)
    checkpoint = inspect(tmp_path)
    assert len(checkpoint.weights) > 1
    assert sum(map(math.prod, checkpoint.shapes.values())) == model.num_parameters()
    assert load_model(str(tmp_path), device="cpu").model.num_parameters() == model.num_parameters()


@pytest.fixture
def offline_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


def test_hub_model_that_is_not_here_needs_a_connection(offline_hub: Path) -> None:
    stages: list[str] = []
    with pytest.raises(ModelError, match="hub cannot be reached") as caught:
        load_model("someone/some-model", on_progress=lambda stage, fraction: stages.append(stage))
    assert caught.value.where == "someone/some-model"
    assert stages == ["Downloading someone/some-model"]


def test_hub_model_in_the_cache_loads_offline(offline_hub: Path, saved: Path) -> None:
    revision = "0123456789abcdef0123456789abcdef01234567"
    repository = offline_hub / "models--someone--tiny-llama"
    shutil.copytree(saved, repository / "snapshots" / revision)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(revision)
    assert load_model("someone/tiny-llama", device="cpu").name == "someone/tiny-llama"


def test_gguf_file_loads(tmp_path: Path) -> None:
    loaded = load_model(str(write_gguf(tmp_path / "tiny.gguf")), device="cpu")
    assert (loaded.name, loaded.max_positions) == ("tiny.gguf", 128)
    assert logits_of(loaded.model, torch.arange(20)[None]).std() > 0.1
    assert loaded.tokenizer.decode(loaded.tokenizer.encode("  12")[0][-1:]) == "2"  # digits stay apart
    assert 2 in loaded.tokenizer.eos_ids
    other = load_model(str(write_gguf(tmp_path / "other.gguf", seed=1)), device="cpu")
    assert other.fingerprint != loaded.fingerprint


@pytest.mark.parametrize("family", ["granitemoe", "falcon-h1"])
def test_a_gguf_file_of_a_family_that_the_reader_lacks_is_refused(tmp_path: Path, family: str) -> None:
    with pytest.raises(ModelError, match=f"'{family}' cannot be used"):
        load_model(str(write_gguf(tmp_path / "tiny.gguf", architecture=family)), device="cpu")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (lambda path: write_gguf(path, architecture="falcon").read_bytes(), "'falcon' cannot be used"),
        (lambda path: write_gguf(path).read_bytes()[:-5000], "cut short"),
        (lambda path: write_gguf(path).read_bytes()[:3000], "header is damaged"),
        (lambda path: b"GGML" + bytes(100), "not a GGUF file"),
        (lambda path: b"GGUF" + b"\xff" * 100, "not a GGUF file"),
        (lambda path: b"GGUF\x03\x00\x00\x00" + b"\xff" * 100, "header is damaged"),
        (lambda path: b"", "cannot be read"),
    ],
)
def test_broken_gguf_is_said(tmp_path: Path, content: Any, words: str) -> None:
    path = tmp_path / "broken.gguf"
    path.write_bytes(content(tmp_path / "whole.gguf"))
    with pytest.raises(ModelError, match=words):
        load_model(str(path), device="cpu")


def test_gguf_is_not_quantised_again(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="quantised again"):
        load_model(str(write_gguf(tmp_path / "tiny.gguf")), quantization="4bit")


def test_missing_bitsandbytes_is_said_with_its_command(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "bitsandbytes" else find_spec(name))
    with pytest.raises(ModelError, match="pip install"):
        load_model(str(saved), device="cpu", dtype="bfloat16", quantization="8bit")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("quantization", "dtype", "divergence"),
    [("8bit", "float32", 0.02), ("4bit", "float32", 0.1), ("8bit", "bfloat16", 0.1), ("4bit", "bfloat16", 1.0)],
)
def test_quantised_default_model_still_answers(quantization: Any, dtype: Any, divergence: float) -> None:
    """Kullback-Leibler divergence from the float32 model, mean over positions, in nats; in bfloat16 by bitsandbytes."""
    if dtype == "bfloat16":
        pytest.importorskip("bitsandbytes")
    exact = default_model()
    loaded = load_model(device="cpu", dtype=dtype, quantization=quantization)
    ids = torch.from_numpy(exact.tokenizer.encode("The capital of France is")[0]).long()[None]
    logits, expected = loaded.model(ids).logits[0].float(), exact.model(ids).logits[0]
    assert loaded.tokenizer.decode([int(logits[-1].argmax())]) == " Paris"
    loss = torch.nn.functional.kl_div(
        logits.log_softmax(-1), expected.log_softmax(-1), log_target=True, reduction="batchmean"
    )
    assert 1e-5 < loss < divergence  # not the float32 model under another name, either
    assert loaded.quantization == quantization
    assert loaded.fingerprint != exact.fingerprint


def test_weights_that_do_not_fit_are_refused_with_a_plan(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = inspect(saved)
    num_weights = sum(map(math.prod, checkpoint.shapes.values()))
    assert checkpoint.weight_bytes(4, "none") == 4 * num_weights
    assert checkpoint.weight_bytes(4, "4bit") < checkpoint.weight_bytes(4, "8bit") < 4 * num_weights
    monkeypatch.setattr(placement, "free_memory_bytes", lambda device: 4 * num_weights - 1)
    with pytest.raises(ModelError, match=r"are free on cpu.*engine\.quantization 4bit"):
        load_model(str(saved), device="cpu")
    assert load_model(str(saved), device="cpu", dtype="bfloat16").dtype == torch.bfloat16


def test_cuda_that_is_not_there_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_device("auto") == torch.device("cpu")
    with pytest.raises(ModelError, match=r"engine\.device cpu"):
        choose_device("cuda")


@pytest.mark.parametrize(
    ("capability", "family", "dtype"),
    [
        ((8, 7), "llama", torch.bfloat16),
        ((7, 5), "llama", torch.float16),
        ((7, 5), "gemma2", torch.float32),
    ],
)
def test_auto_type_follows_the_gpu(
    capability: tuple[int, int], family: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert choose_dtype("auto", torch.device("cuda"), family) == dtype
    assert choose_dtype("float32", torch.device("cuda"), family) == torch.float32
    assert choose_dtype("auto", torch.device("cpu"), family) == torch.float32


def test_errors_become_values_for_the_screen(folder: Path) -> None:
    (folder / "config.json").unlink()
    with pytest.raises(ModelError) as caught:
        load_model(str(folder))
    assert caught.value.to_dict()["code"] == "model"
