"""The tokenizer in a GGUF file, built from its metadata in seconds; transformers takes a minute for it."""

from __future__ import annotations

from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

from ondevice.model.loading._transformers import transformers

_CONTROL, _USER_DEFINED = 3, 4  # ggml's types of tokens that are never cut
_QWEN2_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_SPECIAL = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}


def _smollm() -> pre_tokenizers.PreTokenizer:
    digits = pre_tokenizers.Digits(individual_digits=True)
    return pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])


def _qwen2() -> pre_tokenizers.PreTokenizer:
    split = pre_tokenizers.Split(Regex(_QWEN2_SPLIT), "isolated")
    return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


# How text is split before the merges, by llama.cpp's name for it.
_SPLITS = {"smollm": _smollm, "qwen2": _qwen2}


def is_known(fields: dict[str, Any]) -> bool:
    """True if `build_tokenizer` can build the tokenizer of a file with this metadata: byte-level BPE of a known split.

    One that puts a token in front of every text is left to transformers.
    """
    return (
        fields.get("tokenizer.ggml.model") == "gpt2"
        and fields.get("tokenizer.ggml.pre") in _SPLITS
        and "tokenizer.ggml.merges" in fields
        and "tokenizer.ggml.token_type" in fields
        and not fields.get("tokenizer.ggml.add_bos_token", False)
    )


def build_tokenizer(fields: dict[str, Any]) -> Any:
    """transformers' tokenizer for the metadata of a GGUF file, for which `is_known` holds."""
    tokens = fields["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ", 1)) for merge in fields["tokenizer.ggml.merges"]]
    backend = Tokenizer(models.BPE(vocab={token: index for index, token in enumerate(tokens)}, merges=merges))
    backend.pre_tokenizer = _SPLITS[fields["tokenizer.ggml.pre"]]()
    backend.decoder = decoders.ByteLevel()
    kinds = fields["tokenizer.ggml.token_type"]
    for kind, add in ((_CONTROL, backend.add_special_tokens), (_USER_DEFINED, backend.add_tokens)):
        added = [token for token, its_kind in zip(tokens, kinds, strict=True) if its_kind == kind]
        add([AddedToken(token, normalized=False, special=kind == _CONTROL) for token in added])
    ids = {key: fields.get(f"tokenizer.ggml.{name}_token_id") for key, name in _SPECIAL.items()}
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend,
        chat_template=fields.get("tokenizer.chat_template"),
        clean_up_tokenization_spaces=False,
        **{key: tokens[index] for key, index in ids.items() if index is not None},
    )
