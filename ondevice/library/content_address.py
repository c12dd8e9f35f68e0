"""The content address of a reading: the same for the same text, model, tokenizer and settings, and for no other."""

from __future__ import annotations

import hashlib
import json

from ondevice.config import FIELDS, EngineConfig, value_of
from ondevice.documents.tokens import DocumentTokens
from ondevice.library.library import Entry, Library
from ondevice.model.loading.load import LoadedModel
from ondevice.pot.saving import FORMAT


def content_address(loaded: LoadedModel, tokens: DocumentTokens, config: EngineConfig) -> str:
    """The sha256 of what a reading depends on, in hexadecimal digits.

    Args:
        tokens: of the whole document, by this model's tokenizer; not of a stream.
        config: the settings as they were asked for. Those of answers, and where the model computes, do not count.
    """
    assert tokens.keeps_text
    text = hashlib.sha256()
    for index, page in enumerate(tokens.texts):
        data = page.encode()
        text.update(f"{tokens.page_number(index)} {len(data)}\n".encode())
        text.update(data)
    settings = {
        path: value_of(config, path)
        for path, one in FIELDS.items()
        if (not one.answers and not path.startswith("engine.")) or path == "engine.seed"
    }
    model = (loaded.fingerprint, loaded.tokenizer.fingerprint, str(loaded.dtype), loaded.quantization)
    parts = [FORMAT, text.hexdigest(), *model, sorted(settings.items())]
    return hashlib.sha256(json.dumps(parts, default=str).encode()).hexdigest()


def entry_with(library: Library, loaded: LoadedModel, tokens: DocumentTokens, config: EngineConfig) -> Entry | None:
    """The newest entry of a library that has just this text, read with these settings; None: there is none."""
    address = content_address(loaded, tokens, config)
    return next((one for one in library.entries() if one.address == address and not one.misfit(loaded)), None)
