"""What a benchmark reads: generated text, or the beginning of a document, of a length given in tokens."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from ondevice.bench.natural_text import paragraphs
from ondevice.documents import Document, Page
from ondevice.errors import ConfigError
from ondevice.model.tokenizer import Tokenizer

_PARAGRAPHS_PER_PAGE = 12


def generated(num_tokens: int, tokenizer: Tokenizer, seed: int = 0) -> Document:
    """A document of `num_tokens` tokens, the same for the same seed."""
    endless = Document("generated text", "txt", "part", _pages(seed))
    return beginning(endless, num_tokens, tokenizer)


def beginning(document: Document, num_tokens: int, tokenizer: Tokenizer) -> Document:
    """The first `num_tokens` tokens of a document; a cut inside a word may shift the number by one.

    Raises:
        ConfigError: it is shorter.
    """
    pages: list[Page] = []
    missing = num_tokens
    for page in document.pages:
        _, spans = tokenizer.encode(page.text)
        if len(spans) >= missing:
            pages.append(replace(page, text=page.text[: spans[missing - 1, 1]]))
            return replace(document, pages=tuple(pages), num_pages=len(pages), size_bytes=None)
        pages.append(page)
        missing -= len(spans)
    raise ConfigError(
        f"The document has {num_tokens - missing:,} tokens, fewer than --tokens {num_tokens:,}",
        where=document.name,
        fix="Ask for fewer, or name a longer document.",
    )


def _pages(seed: int) -> Iterator[Page]:
    source = paragraphs(seed)
    number = 0
    while True:
        number += 1
        yield Page(number, "\n\n".join(islice(source, _PARAGRAPHS_PER_PAGE)) + "\n\n")
