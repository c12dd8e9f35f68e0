"""Chunks: together they are the whole document, each ends with a sentence where one ends, and each knows its pages."""

from __future__ import annotations

from itertools import pairwise

import pytest

from ondevice.documents import Document, Page
from ondevice.documents.tokens import DocumentTokens
from ondevice.scan.chunks import chunks
from tests.builders.models import byte_tokenizer

TOKENIZER = byte_tokenizer()  # a letter is a token
SENTENCE = "The lamp was lit at dusk. "


def tokens_of(*texts: str) -> DocumentTokens:
    pages = tuple(Page(2 * number, text) for number, text in enumerate(texts, 1))
    tokens = DocumentTokens(Document("a.txt", "txt", "page", pages, len(pages), 1), TOKENIZER.encode)
    for _ in tokens.read_pages():
        pass
    return tokens


@pytest.mark.parametrize(
    "texts",
    [
        (SENTENCE * 20,),
        (SENTENCE * 3, "", SENTENCE * 4, "Brief."),
        ("x" * 500,),
        ("No end of a sentence " * 20,),
        ("Écru été. " * 30, "Über allen Gipfeln. " * 9),
        ("A.",),
    ],
)
@pytest.mark.parametrize(("size", "overlap"), [(64, 8), (64, 0), (40, 30), (1000, 100)])
def test_no_token_is_left_out(texts: tuple[str, ...], size: int, overlap: int) -> None:
    tokens = tokens_of(*texts)
    found = list(chunks(tokens, size, overlap))
    assert found[0].start == 0
    assert found[-1].stop == tokens.num_tokens
    for one, other in pairwise(found):
        assert one.stop - overlap <= other.start <= one.stop
        assert one.start < other.start
    assert all(0 < one.stop - one.start <= size for one in found)


def test_a_chunk_ends_and_begins_with_a_sentence() -> None:
    found = list(chunks(tokens_of(SENTENCE * 20), 64, 30))
    assert {one.text.strip() for one in found[:-1]} == {(SENTENCE * 2).strip()}


def test_a_character_of_a_chunk_is_found_on_its_page() -> None:
    texts = ("First page has this.", "", "Second page has that. And more.")
    tokens = tokens_of(*texts)
    (whole,) = chunks(tokens, 500, 0)
    assert whole.text == f"{texts[0]}\n{texts[2]}"
    for word in ("this", "that", "more"):
        index, at = whole.place(whole.text.index(word))
        assert texts[index][at:].startswith(word)
    for part in chunks(tokens, 16, 4):
        index, at = part.place(len(part.text) - 1)
        assert texts[index][at] == part.text[-1]
