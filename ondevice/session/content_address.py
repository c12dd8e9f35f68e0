"""The content address of a reading: the same for the same text, model, tokenizer and settings, and for no other."""

from __future__ import annotations

import hashlib
import json

from ondevice.config import FIELDS, EngineConfig, value_of
from ondevice.documents.types import Document
from ondevice.model.loading.load import LoadedModel
from ondevice.pot.saving import FORMAT


def content_address(loaded: LoadedModel, document: Document, config: EngineConfig) -> str:
    """The sha256 of what a reading depends on, in hexadecimal digits.

    Args:
        document: whole, with its pages; not a stream.
        config: the settings as they were asked for. Those of answers, and where the model computes, do not count.
    """
    text = hashlib.sha256()
    for page in document.pages:
        data = page.text.encode()
        text.update(f"{page.number} {len(data)}\n".encode())
        text.update(data)
    settings = {
        path: value_of(config, path)
        for path, one in FIELDS.items()
        if (not one.answers and not path.startswith("engine.")) or path in ("engine.seed", "engine.memory")
    }
    model = (loaded.fingerprint, loaded.tokenizer.fingerprint, str(loaded.dtype), loaded.quantization)
    parts = [FORMAT, text.hexdigest(), *model, sorted(settings.items())]
    return hashlib.sha256(json.dumps(parts, default=str).encode()).hexdigest()
