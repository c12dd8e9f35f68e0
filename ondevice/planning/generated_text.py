"""Generated documents of a length given in tokens, and the beginning of one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from ondevice.documents import Document, Page
from ondevice.errors import ConfigError
from ondevice.model.tokenizer import Tokenizer
from ondevice.planning.natural_text import paragraphs

_PARAGRAPHS_PER_PAGE = 12


def generated(num_tokens: int, tokenizer: Tokenizer, seed: int = 0) -> Document:
    """A document of `num_tokens` tokens, the same for the same seed."""
    endless = Document("generated text", "txt", "part", generated_pages(seed))
    return beginning(endless, num_tokens, tokenizer)


def generated_pages(seed: int) -> Iterator[Page]:
    """Pages without end, the same for the same seed."""
    source = paragraphs(seed)
    number = 0
    while True:
        number += 1
        yield Page(number, "\n\n".join(islice(source, _PARAGRAPHS_PER_PAGE)) + "\n\n")


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
        f"The document has {num_tokens - missing:,} tokens, fewer than {num_tokens:,}",
        where=document.name,
        fix="Ask for fewer, or name a longer document.",
    )
