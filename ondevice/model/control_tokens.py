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


def document_backend(tokenizer: Backend, control: dict[int, str]) -> Backend:
    """A copy of a tokenizer for which control tokens, written in a text, are ordinary text.

    Args:
        tokenizer: may share its vocabulary with the copy.
        control: its control tokens.

    Raises:
        UnsafeModel: it still yields a control token for some text.
    """
    backend = _without_matching(tokenizer, control.values())
    if _leaks(backend, control):
        cut = Backend.from_str(_without_merges(tokenizer.to_str(), set(control.values())))
        backend = _without_matching(cut, control.values())
    if leaks := _leaks(backend, control):
        raise UnsafeModel(
            f"The model's tokenizer reads the text {leaks[0]!r} in a document as a control token",
            fix="Choose another model: a document could steer this one.",
        )
    return backend


def _without_matching(tokenizer: Backend, control: Iterable[str]) -> Backend:
    backend = Backend(tokenizer.model)  # shared: a large vocabulary takes half a second to parse
    for part in ("normalizer", "pre_tokenizer", "decoder"):
        setattr(backend, part, getattr(tokenizer, part))
    added = tokenizer.get_added_tokens_decoder()
    backend.add_tokens([added[index] for index in sorted(added)])
    if backend.get_added_tokens_decoder().keys() != added.keys():  # there are gaps between the ids
        backend = Backend.from_str(tokenizer.to_str())
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
