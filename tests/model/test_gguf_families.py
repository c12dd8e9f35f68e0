"""GGUF files of every family, written as llama.cpp's converter does, are the models that they were made of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from ondevice.kernels.packed import PackedWeight, unpack

from ondevice.errors import ModelError
from ondevice.model.decoder import Decoder
from ondevice.model.loading import form, gguf_packed, kept_tiles
from ondevice.model.loading._transformers import transformers
from ondevice.model.loading.gguf_file import read_header
from ondevice.model.loading.gguf_tokenizer import SPLITS, GgufTokenizer, is_known
from ondevice.model.loading.gguf_weights import numbers_of
from ondevice.model.loading.load import load_model, outline_model
from ondevice.model.packed_modules import PackedLinear
from ondevice.model.tokenizer import Tokenizer
from ondevice_bench.speed.quantized import packed_bytes
from tests.builders import gguf_files
from tests.builders.gguf_files import TOKENS, write_model
from tests.builders.models import logits_of, tiny_model

_OF_GGUF: dict[str, tuple[str, dict[str, Any]]] = {
    "gemma3_text": (
        "gemma3",
        {
            "attention__key_length": 16,
            "attention__sliding_window": 24,
            "attention__sliding_window_pattern": 2,
            "rope__freq_base_swa": 100.0,
            "rope__scaling__type": "linear",
            "rope__scaling__factor": 2.0,
        },
    ),
    "qwen3_5_text": (
        "qwen35",
        {
            "attention__key_length": 16,
            "full_attention_interval": 2,
            "rope__dimension_count": 8,
            "rope__dimension_sections": [2, 1, 1, 0],
            "ssm__conv_kernel": 4,
            "ssm__state_size": 16,
            "ssm__group_count": 2,
            "ssm__time_step_rank": 4,
            "ssm__inner_size": 64,
        },
    ),
    "gemma4_text": (
        "gemma4",
        {
            "feed_forward_length": [192, 192, 192, 192, 384, 384],
            "attention__key_length": 32,
            "attention__key_length_swa": 16,
            "attention__shared_kv_layers": 2,
            "attention__sliding_window": 24,
            "attention__sliding_window_pattern": [True, False] * 3,
            "embedding_length_per_layer_input": 32,
            "final_logit_softcapping": 10.0,
            "rope__freq_base_swa": 100.0,
        },
    ),
    "lfm2": ("lfm2", {"shortconv__l_cache": 3}),
    "gpt_oss": (
        "gpt-oss",
        {
            "attention__key_length": 16,
            "attention__sliding_window": 24,
            "expert_count": 4,
            "expert_used_count": 2,
            "expert_feed_forward_length": 192,
            "rope__scaling__type": "yarn",
            "rope__scaling__factor": 8.0,
            "rope__scaling__original_context_length": 48,
        },
    ),
    "granitemoehybrid": (
        "granitehybrid",
        {
            "attention__scale": 0.2,
            "embedding_scale": 3.0,
            "residual_scale": 0.6,
            "logit_scale": 2.0,
            "expert_count": 4,
            "expert_used_count": 2,
            "expert_shared_feed_forward_length": 96,
            "rope__scaling__finetuned": False,
            "ssm__conv_kernel": 4,
            "ssm__state_size": 16,
            "ssm__group_count": 2,
            "ssm__time_step_rank": 8,
            "ssm__inner_size": 128,
        },
    ),
}
_VECTORS = {"gemma4": {"rope_freqs.weight": [1.0] * 8 + [1e30] * 8}}
_OF_OTHERS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {"rope__dimension_count": 16}),
    "qwen3": ("qwen3", {"attention__key_length": 16}),
    "smollm3": ("smollm3", {"rope__dimension_count": 16}),
    "ministral3": (
        "mistral3",
        {
            "attention__key_length": 16,
            "attention__temperature_scale": 0.5,
            "rope__dimension_count": 16,
            "rope__scaling__type": "yarn",
            "rope__scaling__factor": 8.0,
            "rope__scaling__original_context_length": 48,
            "rope__scaling__yarn_beta_fast": 32.0,
            "rope__scaling__yarn_beta_slow": 1.0,
            "rope__scaling__yarn_log_multiplier": 1.0,
        },
    ),
    "phi3": ("phi3", {"rope__dimension_count": 16}),
    "granite": (
        "granite",
        {"attention__scale": 0.2, "embedding_scale": 3.0, "residual_scale": 0.6, "logit_scale": 2.0},
    ),
    "gemma2": ("gemma2", {"attention__key_length": 16, "attention__sliding_window": 24}),
}


@pytest.mark.parametrize("family", _OF_GGUF)
def test_a_gguf_file_of_a_family_with_states_is_the_model_it_was_made_of(tmp_path: Path, family: str) -> None:
    name, fields = _OF_GGUF[family]
    # What no file says is as in models that there are.
    own = {"gemma3": {"query_pre_attn_scalar": 16}, "gpt-oss": {"swiglu_limit": 7.0}}.get(name, {})
    model = tiny_model(family, vocab_size=len(TOKENS), **own)
    path = str(write_model(tmp_path / "tiny.gguf", name, model, _VECTORS.get(name), **fields))
    loaded, ids = load_model(path, device="cpu"), torch.arange(60)[None]
    assert (logits_of(loaded.model, ids) - model(ids).logits).abs().max() <= 1e-4
    assert (loaded.max_positions, loaded.quantization) == (512, "none")
    outline, config = outline_model(path, torch.device("cpu")).model.config, loaded.model.config
    assert (outline.rope_parameters, outline.layer_types) == (config.rope_parameters, config.layer_types)


@pytest.mark.parametrize("family", [*_OF_GGUF, *_OF_OTHERS])
@pytest.mark.parametrize("kind", ["Q8_0", "F16"])
def test_products_of_any_family_are_those_of_the_unpacked_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, family: str, kind: str
) -> None:
    name, fields = (_OF_GGUF | _OF_OTHERS)[family]
    model = tiny_model(family, vocab_size=len(TOKENS))
    path = str(write_model(tmp_path / "tiny.gguf", name, model, _VECTORS.get(name), kind, **fields))
    monkeypatch.setenv("KERNELS_PACKED", "float32")
    monkeypatch.setenv("ONDEVICE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(kept_tiles, "_FEWEST", 0)
    monkeypatch.setattr(gguf_packed, "_FEWEST", 0)
    monkeypatch.setattr(form, "_LARGE", 0)
    first, second, exact = (load_model(path, device="cpu", quantization=x) for x in ("auto", "auto", "none"))
    assert (first.quantization, second.quantization, exact.quantization) == ("stored", "stored", "none")
    assert first.fingerprint == second.fingerprint
    assert any(isinstance(module, PackedLinear) for module in first.model.modules())
    ids = torch.arange(60)[None]
    found = [logits_of(one.model, ids) for one in (first, second)]
    assert torch.equal(found[0], found[1]), "what was kept is what was made"
    expected = exact.model(ids).logits
    if kind == "Q8_0":
        assert (found[0] - expected).abs().max() <= 1e-4
    else:  # rounded to 8 bits, which may send a token to another expert
        assert (found[0] - expected).norm() <= (0.2 if "oss" in name else 0.1) * expected.norm()
    others = sum(weight.nbytes for weight in first.model.parameters())
    assert first.weight_bytes == pytest.approx(packed_bytes(first.model) + others, rel=0.02)


def test_a_gguf_file_of_granite_without_experts_is_the_model_it_was_made_of(tmp_path: Path) -> None:
    name, fields = _OF_GGUF["granitemoehybrid"]
    dense = {key: value for key, value in fields.items() if "expert" not in key} | {"rope__scaling__finetuned": True}
    own = {"num_local_experts": 0, "position_embedding_type": "rope", "mamba_conv_bias": False}
    model = tiny_model("granitemoehybrid", vocab_size=len(TOKENS), **own)
    _is_the_model(write_model(tmp_path / "tiny.gguf", name, model, **dense), model, 60)


def test_experts_of_a_gguf_file_in_mxfp4_are_packed_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gguf import GGMLQuantizationType, quants

    name, fields = _OF_GGUF["gpt_oss"]
    model = tiny_model("gpt_oss", vocab_size=len(TOKENS))
    path = write_model(tmp_path / "tiny.gguf", name, model, kind="MXFP4", **fields)
    tensor = next(one for one in read_header(path).tensors if one.name == "blk.0.ffn_down_exps.weight")
    exact = model.model.layers[0].mlp.experts.down_proj.transpose(1, 2).contiguous().numpy()
    stored = quants.dequantize(quants.quantize(exact, GGMLQuantizationType.MXFP4), GGMLQuantizationType.MXFP4)
    assert torch.equal(numbers_of(path, tensor), torch.from_numpy(stored))
    monkeypatch.setenv("KERNELS_PACKED", "float32")
    packed, wide = (load_model(str(path), device="cpu", quantization=form) for form in ("auto", "none"))  # type: ignore[arg-type]
    assert packed.quantization == "stored"
    expert = packed.model.model.layers[0].mlp.experts.down[1]
    assert isinstance(expert.weight, PackedWeight)
    assert torch.equal(unpack(expert.weight), torch.from_numpy(stored[1]))
    ids = torch.arange(60)[None]
    assert (logits_of(packed.model, ids) - logits_of(wide.model, ids)).abs().max() <= 1e-3


def test_parts_of_one_weight_that_are_not_of_one_type_are_refused(tmp_path: Path) -> None:
    name, fields = _OF_GGUF["granitemoehybrid"]
    model = tiny_model("granitemoehybrid", vocab_size=len(TOKENS))
    path = write_model(tmp_path / "tiny.gguf", name, model, kind="F16", **fields)
    header = path.read_bytes()
    at = header.index(b"blk.0.ffn_up_shexp.weight") + len(b"blk.0.ffn_up_shexp.weight") + 4 + 2 * 8
    path.write_bytes(header[:at] + (30).to_bytes(4, "little") + header[at + 4 :])  # bfloat16
    with pytest.raises(ModelError, match="not of one type"):
        load_model(str(path), device="cpu")


def test_words_of_openais_split_keep_the_end_of_a_contraction() -> None:
    found = [text.replace("\u0120", " ") for text, _ in SPLITS["gpt-4o"].pre_tokenize_str("I'm McDonald's  12345")]
    assert found == ["I'm", " Mc", "Donald's", " ", " ", "123", "45"]


def test_a_gguf_file_of_smollm3_has_no_positions_in_every_fourth_layer(tmp_path: Path) -> None:
    model = tiny_model("smollm3", vocab_size=len(TOKENS), num_layers=5, no_rope_layer_interval=4)
    assert model.config.no_rope_layers == [1, 1, 1, 0, 1]
    _is_the_model(write_model(tmp_path / "tiny.gguf", "smollm3", model, rope__dimension_count=16), model, 60)


def test_a_gguf_file_of_a_gemma_without_experts_is_read_whatever_it_shares(tmp_path: Path) -> None:
    name, fields = _OF_GGUF["gemma4_text"]
    own = {"attention_k_eq_v": True, "num_global_key_value_heads": 1, "num_kv_shared_layers": 0}
    model = tiny_model("gemma4_text", vocab_size=len(TOKENS), hidden_size_per_layer_input=0, **own)
    fields = fields | {"attention__head_count_kv": [2, 1] * 3, "attention__shared_kv_layers": 0}
    fields |= {"feed_forward_length": 192, "embedding_length_per_layer_input": 0}
    _is_the_model(write_model(tmp_path / "tiny.gguf", name, model, _VECTORS[name], **fields), model, 60)
    path = write_model(tmp_path / "experts.gguf", name, model, _VECTORS[name], **fields, expert_count=8)
    with pytest.raises(ModelError, match="it has experts"):
        load_model(str(path), device="cpu")


def test_keys_that_a_file_has_of_layers_that_share_others_are_left_out(tmp_path: Path) -> None:
    name, fields = _OF_GGUF["gemma4_text"]
    model = tiny_model("gemma4_text", vocab_size=len(TOKENS))
    unused = {
        f"blk.{layer}.{part}.weight": [0.0] * 16 for layer in (4, 5) for part in ("attn_k", "attn_v", "attn_k_norm")
    }
    _is_the_model(write_model(tmp_path / "tiny.gguf", name, model, _VECTORS[name] | unused, **fields), model, 60)


def test_text_is_cut_as_gemma_4_cuts_it() -> None:
    special = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "<|turn>", "<turn|>"]
    letters = ["\u2581", *map(chr, range(33, 127))]
    merges = [("t", "h"), ("th", "e"), ("\u2581", "the"), ("\u2581", "\u2581"), ("\n", "\n")]
    tokens = [*special, *(f"<0x{byte:02X}>" for byte in range(256)), *letters, "\n", *map("".join, merges)]
    fields = {
        "tokenizer.ggml.model": "gemma4",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.merges": [" ".join(merge) for merge in merges],
        "tokenizer.ggml.token_type": [3 if token in special else 6 if token[:3] == "<0x" else 1 for token in tokens],
        "tokenizer.ggml.bos_token_id": 2,
        "tokenizer.ggml.eos_token_id": 6,
        "tokenizer.ggml.unknown_token_id": 3,
        "tokenizer.ggml.padding_token_id": 0,
        "tokenizer.ggml.add_bos_token": True,
        "tokenizer.chat_template": "{{ bos_token }}{% for one in messages %}<|turn>{{ one.role }}\n"
        "{{ one.content }}<turn|>\n{% endfor %}{% if add_generation_prompt %}<|turn>model\n{% endif %}",
    }
    assert is_known(fields)
    ours = Tokenizer(GgufTokenizer(fields))
    theirs = transformers.GemmaTokenizer({token: index for index, token in enumerate(tokens)}, merges)
    text = "  the lathe\n\nna\u00efve  \u0939\u093f <turn|> the"
    ids, spans = ours.encode(text)
    assert ids.tolist() != ours.encode_prompt(text), "a document cannot end a turn"
    assert ours.encode_prompt("<|turn>the")[0] == tokens.index("<|turn>")
    assert ours.eos_ids == {1, 6} or ours.eos_ids == {6}
    plain = text.replace("<turn|>", "")
    assert ours.encode(plain)[0].tolist() == theirs.encode(plain, add_special_tokens=False)
    assert ours.decode(ids) == text
    assert spans[-1].tolist() == [len(text) - 4, len(text)]


def test_a_gguf_file_of_ministral_3_turns_and_scales_as_its_model(tmp_path: Path) -> None:
    name, fields = _OF_OTHERS["ministral3"]
    model = tiny_model("ministral3", vocab_size=len(TOKENS))
    _is_the_model(write_model(tmp_path / "tiny.gguf", name, model, **fields), model, 40, 150)
    other = fields | {"rope__scaling__type": "linear"}
    with pytest.raises(ModelError, match="it is no dense Ministral 3"):
        load_model(str(write_model(tmp_path / "other.gguf", name, model, **other)), device="cpu")


def test_words_of_mistrals_split_are_capitals_with_small_letters_after_them() -> None:
    found = [text.replace("\u0120", " ") for text, _ in SPLITS["tekken"].pre_tokenize_str("McDonald's  12 iPads?/\n")]
    assert found == ["Mc", "Donald", "'s", " ", " ", "1", "2", " i", "Pads", "?/\n".replace("\n", "\u010a")]


def test_a_file_that_wants_it_has_a_begin_token_in_front_of_plain_text(tmp_path: Path) -> None:
    path = write_model(tmp_path / "tiny.gguf", "llama", tiny_model("llama", vocab_size=len(TOKENS)))
    fields = read_header(path).metadata
    tokenizer = Tokenizer(GgufTokenizer(fields | {"tokenizer.ggml.add_bos_token": True}))
    assert tokenizer.leading_ids() == [1]
    assert Tokenizer(GgufTokenizer(fields)).leading_ids() == []
    silent = {key: value for key, value in fields.items() if key != "tokenizer.ggml.add_bos_token"}
    assert Tokenizer(GgufTokenizer(silent | {"tokenizer.ggml.pre": "llama-bpe"})).leading_ids() == [1]
    assert 1 not in tokenizer.encode("one")[0]


def test_a_gguf_file_whose_merges_make_no_token_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gguf_files, "MERGES", [("h", "x")])
    path = write_model(tmp_path / "tiny.gguf", "llama", tiny_model("llama", vocab_size=len(TOKENS)))
    with pytest.raises(ModelError, match="its tokenizer cannot be built"):
        load_model(str(path), device="cpu")


def test_a_word_of_the_vocabulary_is_one_token_where_merges_do_not_count(tmp_path: Path) -> None:
    path = write_model(tmp_path / "tiny.gguf", "llama", tiny_model("llama", vocab_size=len(TOKENS)))
    fields = dict(read_header(path).metadata)
    fields["tokenizer.ggml.tokens"] = [*fields["tokenizer.ggml.tokens"][:-1], "lamp"]
    fields["tokenizer.ggml.merges"] = fields["tokenizer.ggml.merges"][:-1]
    counts = [
        len(
            GgufTokenizer(fields | {"tokenizer.ggml.pre": pre}).backend_tokenizer.encode(
                "lamp", add_special_tokens=False
            )
        )
        for pre in ("lfm2", "llama-bpe", "tekken", "smaug-bpe")
    ]
    assert counts == [1, 1, 1, 4]


def test_numbers_are_cut_into_three_digits_for_this_family() -> None:
    found = [text.replace("\u0120", " ") for text, _ in SPLITS["smaug-bpe"].pre_tokenize_str("He  said 1234567, don't")]
    assert found == ["He", " ", " said", " ", "123", "456", "7", ",", " don", "'t"]


def test_text_is_split_as_transformers_splits_it_for_this_family(tmp_path: Path) -> None:
    name, fields = _OF_GGUF["qwen3_5_text"]
    path = write_model(tmp_path / "tiny.gguf", name, tiny_model("qwen3_5_text", vocab_size=len(TOKENS)), **fields)
    ours = load_model(str(path), device="cpu").tokenizer
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path, gguf_file=path.name)
    text = "He  said 12: na\u0301ive, don't\n\n  \u0915\u093f!\u0301 \tx"
    assert ours.encode_prompt(text) == theirs.backend_tokenizer.encode(text, add_special_tokens=False).ids


def test_a_gguf_file_of_llama_3_turns_by_its_own_divisors(tmp_path: Path) -> None:
    rope = {"rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    rope["original_max_position_embeddings"] = 64
    model = tiny_model("llama", vocab_size=len(TOKENS), rope_parameters=rope)
    frequencies = 1 / 500.0 ** (torch.arange(0, 16, 2, dtype=torch.float) / 16)
    divisors = (frequencies / model.model.rotary_emb.inv_freq).tolist()
    path = write_model(
        tmp_path / "tiny.gguf", "llama", model, {"rope_freqs.weight": divisors}, rope__dimension_count=16
    )
    _is_the_model(path, model, 60)


def test_a_gguf_file_of_phi_3_turns_by_its_own_divisors_before_and_after_its_first_length(tmp_path: Path) -> None:
    short, long = [1.0, 1.5, 2.0, 2.5, 3.0, 3.5], [4.0, 5.0, 6.0, 7.0, 8.0, 9.0]
    rope = {"rope_type": "longrope", "rope_theta": 10_000.0, "short_factor": short, "long_factor": long}
    rope |= {"partial_rotary_factor": 0.75, "original_max_position_embeddings": 48}
    model = tiny_model(
        "phi3", vocab_size=len(TOKENS), rope_parameters=rope, original_max_position_embeddings=48, max_positions=384
    )
    factors = {"rope_factors_short.weight": short, "rope_factors_long.weight": long}
    own = {"attn_factor": model.model.rotary_emb.attention_scaling, "original_context_length": 48}
    assert own["attn_factor"] > 1
    path = write_model(
        tmp_path / "tiny.gguf",
        "phi3",
        model,
        factors,
        rope__dimension_count=12,
        **{f"rope__scaling__{name}": value for name, value in own.items()},
    )
    _is_the_model(path, model, 40, 100)


def _is_the_model(path: Path, model: Any, *sizes: int) -> None:
    decoder = Decoder(load_model(str(path), device="cpu").model)
    for size in sizes:
        ids = torch.arange(size)[None]
        logits = decoder.head.logits(decoder.forward(ids, decoder.new_pot(size)).hidden_states)
        assert (logits - model(ids).logits).abs().max() <= 1e-4


def test_a_gguf_file_with_scaled_positions_that_nobody_reads_is_refused(tmp_path: Path) -> None:
    model = tiny_model("lfm2", vocab_size=len(TOKENS))
    path = write_model(tmp_path / "tiny.gguf", "lfm2", model, shortconv__l_cache=3, rope__scaling__type="yarn")
    with pytest.raises(ModelError, match=r"scaled \(yarn\)"):
        load_model(str(path), device="cpu")


def test_a_gguf_file_that_lacks_weights_is_refused(tmp_path: Path) -> None:
    model = tiny_model("lfm2", vocab_size=len(TOKENS))
    model.model.layers = model.model.layers[:3]
    path = write_model(tmp_path / "tiny.gguf", "lfm2", model, shortconv__l_cache=3)
    with pytest.raises(ModelError, match=r"11 weights are missing, the first is model\.layers\.3\."):
        load_model(str(path), device="cpu")
