"""Keeps documents from speaking with a model's control tokens.

A control token is an added token that steers the model: every special one, and every other that its chat
template writes (`<think>` and `<tool_call>` are not "special" to Qwen's tokenizer, yet mean as much).
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from tokenizers import AddedToken, processors
from tokenizers import Tokenizer as Backend

from ondevice.errors import UnsafeModel


def control_tokens(backend: Backend, template: str) -> dict[int, str]:
    """The control tokens of a tokenizer by id, each as it is written."""
    return {
        token_id: token.content
        for token_id, token in backend.get_added_tokens_decoder().items()
        if token.special or (token.content.strip() and token.content in template)
    }


def document_backend(spec: str, control: dict[int, str]) -> Backend:
    """A copy of a tokenizer for which control tokens, written in a text, are ordinary text.

    Args:
        spec: the tokenizer in the format of `tokenizer.json`.
        control: its control tokens.

    Raises:
        UnsafeModel: it still yields a control token for some text.
    """
    backend = _without_matching(spec, control.values())
    if _leaks(backend, control):
        backend = _without_matching(_without_merges(spec, set(control.values())), control.values())
    if leaks := _leaks(backend, control):
        raise UnsafeModel(
            f"The model's tokenizer reads the text {leaks[0]!r} in a document as a control token",
            fix="Choose another model: a document could steer this one.",
        )
    return backend


def _without_matching(spec: str, control: Iterable[str]) -> Backend:
    backend = Backend.from_str(spec)
    # `encode_special_tokens` goes by this mark; the ids stay, as the tokens exist already.
    backend.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in control])
    backend.encode_special_tokens = True
    # They add tokens, or take the blank off the front of a token's span: a document wants neither.
    backend.post_processor = processors.Sequence([])
    backend.no_truncation()
    backend.no_padding()
    return backend


def _leaks(backend: Backend, control: dict[int, str]) -> list[str]:
    texts = [text for content in control.values() for text in (content, f"x{content}x", f" {content} ")]
    ids = set(backend.encode("\n".join(texts), add_special_tokens=False).ids)
    return [control[token_id] for token_id in sorted(ids & control.keys())]


def _without_merges(spec: str, results: set[str]) -> str:
    """The tokenizer without the merges that spell out one of `results`.

    Where merges are derived from a sentencepiece vocabulary (GGUF files), "<" + "s>" can become `<s>`.
    """
    parsed = json.loads(spec)
    model = parsed["model"]
    pairs = [tuple(merge.split(" ")) if isinstance(merge, str) else tuple(merge) for merge in model.get("merges", [])]
    model["merges"] = [list(pair) for pair in pairs if "".join(pair) not in results]
    return json.dumps(parsed)
