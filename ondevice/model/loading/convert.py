"""Writes the smallest model, a Llama in GGUF, as a folder that transformers reads in seconds.

It is SmolLM2-135M-Instruct: Apache-2.0, https://huggingface.co/HuggingFaceTB/SmolLM2-135M-Instruct.

transformers can read GGUF itself, but takes half a minute for it at every start, and its tokenizer for
this file misses the split into single digits (`tokenizer.ggml.pre = smollm`), so that "  12" comes out
as other tokens than those the model was trained on.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from ondevice.model.loading.gguf_model import config_of, inspect_gguf, load_gguf
from ondevice.model.loading.gguf_tokenizer import GgufTokenizer, is_known
from ondevice.model.loading.gguf_weights import DenseStore


def convert(file: Path, folder: Path, on_fraction: Callable[[float], None]) -> None:
    """Write config, tokenizer and float32 weights of a tied-embedding Llama into `folder`."""
    summary = inspect_gguf(file)
    gguf = summary.header
    # float32, because the dequantised values need it: only 69 % of them are exact in float16, 26 % in bfloat16.
    config = vars(config_of(gguf)) | {"architectures": ["LlamaForCausalLM"], "dtype": "float32"}
    config["tie_word_embeddings"] = True
    del config["attention_bias"]
    special = {name: config[name] for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
    _write_json(folder / "config.json", config)
    _write_json(folder / "generation_config.json", {"_from_model_config": True, **special})
    _write_tokenizer(gguf.metadata, folder)
    store = DenseStore(torch.device("cpu"), torch.float32)
    model, _ = load_gguf(file, summary, lambda stage, fraction: on_fraction(fraction or 0.0), store)
    weights = {name: weight for name, weight in model.state_dict().items() if name != "lm_head.weight"}  # the embedding
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def _write_tokenizer(fields: dict[str, Any], folder: Path) -> None:
    """Write byte-level BPE without what transformers adds around a text, its settings and the chat template."""
    if not is_known(fields):
        raise ValueError("the tokenizer in the file is not SmolLM's")
    tokenizer = GgufTokenizer(fields)
    spec = json.loads(tokenizer.backend_tokenizer.to_str())
    byte_level = spec["pre_tokenizer"]["pretokenizers"][-1]
    _write_json(folder / "tokenizer.json", spec | {"post_processor": None, "decoder": byte_level})
    about = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": fields["llama.context_length"],
        "clean_up_tokenization_spaces": False,
        **tokenizer.special,
    }
    _write_json(folder / "tokenizer_config.json", about)
    (folder / "chat_template.jinja").write_text(fields["tokenizer.chat_template"], encoding="utf-8")


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
