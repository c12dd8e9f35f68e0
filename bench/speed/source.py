"""Texts of benchmarks: generated, or the beginning of a document, of a length given in tokens."""

from __future__ import annotations

from pathlib import Path

from ondevice.documents import Document
from ondevice_bench.quality.measurement import Setup
from ondevice_bench.speed.generated_text import generated

NUM_TOKENS, QUICK_TOKENS = 65_536, 4_096


def chosen(setup: Setup, text: Path | None, num_tokens: int | None) -> Document:
    """So many tokens of a document, or of generated text; None: all of the one, `NUM_TOKENS` of the other."""
    if text is not None:
        return setup.beginning(text, num_tokens)
    return generated(num_tokens or NUM_TOKENS, setup.engine.loaded.tokenizer, setup.engine.config.seed)
