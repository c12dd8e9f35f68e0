"""Generated documents of a length given in tokens."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from ondevice.documents import Document, Page
from ondevice.model.tokenizer import Tokenizer
from ondevice.planning.calibrate import beginning
from ondevice_bench.speed.natural_text import paragraphs

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
