"""The tokenizer in a GGUF file, built from its metadata in a second; transformers takes a minute for it."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from ondevice.errors import ModelError
from ondevice.model import chat
from ondevice.model.loading._transformers import transformers

TOKENS = "tokenizer.ggml.tokens"
_BLANK = "\u2581"
_CONTROL, _USER_DEFINED = 3, 4  # ggml's types of tokens that are never cut
_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?LETTERS+|DIGITS"
    r"| ?[^\sMARKS\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# Mistral's: a word is capitals with small letters after them.
_CAPITAL, _SMALL = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_CAPITAL}*{_SMALL}+|[^\r\n\p{{L}}\p{{N}}]?{_CAPITAL}+{_SMALL}*|\p{{N}}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_ENDING = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
# OpenAI's: as Mistral's, with the ending of a contraction, and up to three digits.
_O200K = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_CAPITAL}*{_SMALL}+{_ENDING}|[^\r\n\p{{L}}\p{{N}}]?{_CAPITAL}+{_SMALL}*{_ENDING}"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_SPECIAL = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}


def _split(letters: str, marks: str = "", digits: str = r"\p{N}") -> pre_tokenizers.PreTokenizer:
    return _by(_SPLIT.replace("LETTERS", letters).replace("MARKS", marks).replace("DIGITS", digits))


def _by(pattern: str) -> pre_tokenizers.PreTokenizer:
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"), byte_level])


# How text is split before the merges, by llama.cpp's name for it.
SPLITS = {
    **dict.fromkeys(
        ("smollm", "refact"),
        pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        ),
    ),
    "qwen2": _split(r"\p{L}"),
    "qwen35": _split(r"[\p{L}\p{M}]", r"\p{M}"),  # marks belong to the letters before them
    "tekken": _by(_TEKKEN),
    "gpt-4o": _by(_O200K),
    **dict.fromkeys(("llama-bpe", "lfm2", "smaug-bpe", "dbrx"), _split(r"\p{L}", digits=r"\p{N}{1,3}")),
}
# What the vocabulary of these has is one token, whatever is merged; and a file that says nothing wants a begin token.
_WHOLE = ("llama-bpe", "lfm2", "tekken")


def is_known(fields: dict[str, Any]) -> bool:
    """True if `GgufTokenizer` can be the tokenizer of a file with this metadata: BPE of a known kind."""
    if not {"tokenizer.ggml.merges", "tokenizer.ggml.token_type"} <= fields.keys():
        return False
    is_split = fields.get("tokenizer.ggml.model") == "gpt2" and fields.get("tokenizer.ggml.pre") in SPLITS
    return is_split or _is_gemma(fields)


class GgufTokenizer:
    """The parts of transformers' tokenizer that `Tokenizer` uses; that itself is needed for a new conversation alone.

    Args:
        fields: metadata of a GGUF file, for which `is_known` holds.
        spec: its backend as it was built before, in the format of `tokenizer.json`; "": it is built from the fields.
        rendered: conversations by the chat template, as `rendered` gave them before.

    Raises:
        ValueError: there is no such tokenizer.

    Attributes:
        special: tokens with a meaning of their own, by transformers' names.
    """

    def __init__(self, fields: dict[str, Any], spec: str = "", rendered: dict[str, str] | None = None) -> None:
        self.spec = spec
        ids = {key: fields.get(f"tokenizer.ggml.{name}_token_id") for key, name in _SPECIAL.items()}
        special = [index for index in ids.values() if index is not None]
        try:
            self.backend_tokenizer = Tokenizer.from_str(spec) if spec else _build(fields, special)
        except Exception as error:  # the library raises nothing narrower
            raise ValueError(f"its tokenizer cannot be built: {error}") from error
        self.special = {
            key: self.backend_tokenizer.id_to_token(index) for key, index in ids.items() if index is not None
        }
        self.eos_token, self.chat_template = self.special.get("eos_token"), fields.get("tokenizer.chat_template")
        self._rendered = rendered or {}

    def apply_chat_template(self, messages: list[dict[str, str]], **options: Any) -> str:
        """A conversation by the template; `options` are always the same."""
        key = json.dumps(messages)
        if key not in self._rendered:
            hf = transformers.PreTrainedTokenizerFast(
                tokenizer_object=self.backend_tokenizer, chat_template=self.chat_template, **self.special
            )
            self._rendered[key] = hf.apply_chat_template(messages, **options)
        return self._rendered[key]

    def rendered(self) -> dict[str, str]:
        """The conversations that every session asks for, as far as the template takes them."""
        if self.chat_template:
            with suppress(ModelError):
                chat.rendered(self)
        return self._rendered


def _is_gemma(fields: dict[str, Any]) -> bool:
    """True for Gemma 4's BPE: of characters, with bytes for those that it lacks."""
    return fields.get("tokenizer.ggml.model") == "gemma4"


def _build(fields: dict[str, Any], special: list[int]) -> Tokenizer:
    tokens = fields[TOKENS]
    merges = [tuple(merge.split(" ", 1)) for merge in fields["tokenizer.ggml.merges"]]
    vocab = {token: index for index, token in enumerate(tokens)}
    if _is_gemma(fields):
        unknown = tokens[fields["tokenizer.ggml.unknown_token_id"]]
        backend = Tokenizer(models.BPE(vocab, merges, unk_token=unknown, fuse_unk=True, byte_fallback=True))
        backend.normalizer = normalizers.Replace(" ", _BLANK)
        backend.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
        backend.decoder = decoders.Sequence([decoders.Replace(_BLANK, " "), decoders.ByteFallback(), decoders.Fuse()])
    else:
        kind = fields["tokenizer.ggml.pre"]
        backend = Tokenizer(models.BPE(vocab, merges, ignore_merges=kind in _WHOLE))
        backend.pre_tokenizer = SPLITS[kind]
        backend.decoder = decoders.ByteLevel()
    first, of_first = "", []
    if fields.get("tokenizer.ggml.add_bos_token", fields.get("tokenizer.ggml.pre") in _WHOLE):
        index = fields["tokenizer.ggml.bos_token_id"]
        first, of_first = f"{tokens[index]} ", [(tokens[index], index)]
    backend.post_processor = processors.TemplateProcessing(f"{first}$A", f"{first}$A $B:1", of_first)
    kinds = fields["tokenizer.ggml.token_type"]
    others = [tokens[index] for index in special if kinds[index] not in (_CONTROL, _USER_DEFINED)]
    for kind, add in ((_CONTROL, backend.add_special_tokens), (_USER_DEFINED, backend.add_tokens)):
        added = [token for token, its_kind in zip(tokens, kinds, strict=True) if its_kind == kind]
        add([AddedToken(token, normalized=False, special=kind == _CONTROL) for token in added])
    backend.add_special_tokens(others)
    return backend
