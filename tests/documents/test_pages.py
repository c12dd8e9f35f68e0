"""The pages of a tokenised document."""

from __future__ import annotations

from ondevice.documents import Document, Page
from ondevice.documents.tokens import DocumentTokens
from tests.builders.models import by_letter


def test_pages_are_found_and_empty_ones_hold_nothing() -> None:
    pages = tuple(Page(number, text) for number, text in ((4, "ab"), (5, ""), (9, "cde")))
    tokens = DocumentTokens(Document("d.epub", "epub", "chapter", pages, 3, 5), by_letter)
    assert tokens.num_tokens == tokens.num_pages == 0
    for _ in tokens.read_pages():
        pass
    assert (tokens.num_tokens, tokens.num_pages, tokens.num_total) == (5, 3, 5)
    assert [tokens.page_of(token) for token in range(5)] == [4, 4, 9, 9, 9]
    assert [tokens.page_index(token) for token in range(5)] == [0, 0, 2, 2, 2]
    assert [tokens.page_tokens(index) for index in range(3)] == [(0, 2), (2, 2), (2, 5)]
