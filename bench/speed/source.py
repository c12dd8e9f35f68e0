"""Texts of benchmarks: generated, or the beginning of a document, of a length given in tokens."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from ondevice.bench.natural_text import paragraphs
from ondevice.documents import Document, Page
from ondevice.evaluation.measurement import Setup, beginning
from ondevice.model.tokenizer import Tokenizer

NUM_TOKENS, QUICK_TOKENS = 65_536, 4_096
_PARAGRAPHS_PER_PAGE = 12


def generated(num_tokens: int, tokenizer: Tokenizer, seed: int = 0) -> Document:
    """A document of `num_tokens` tokens, the same for the same seed."""
    endless = Document("generated text", "txt", "part", generated_pages(seed))
    return beginning(endless, num_tokens, tokenizer)


def chosen(setup: Setup, text: Path | None, num_tokens: int | None) -> Document:
    """So many tokens of a document, or of generated text; None: all of the one, `NUM_TOKENS` of the other."""
    if text is not None:
        return setup.beginning(text, num_tokens)
    return generated(num_tokens or NUM_TOKENS, setup.engine.loaded.tokenizer, setup.engine.config.seed)


def generated_pages(seed: int) -> Iterator[Page]:
    """Pages without end, the same for the same seed."""
    source = paragraphs(seed)
    number = 0
    while True:
        number += 1
        yield Page(number, "\n\n".join(islice(source, _PARAGRAPHS_PER_PAGE)) + "\n\n")
