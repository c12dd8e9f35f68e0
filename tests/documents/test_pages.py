"""The pages of a tokenised document."""

from __future__ import annotations

import numpy as np

from ondevice.documents import Document, Page
from ondevice.documents.tokens import DocumentTokens, Int32Array


def encode(text: str) -> tuple[Int32Array, Int32Array]:
    """A token a character."""
    starts = np.arange(len(text), dtype=np.int32)
    return starts, np.stack((starts, starts + 1), axis=1)


def test_pages_are_found_and_empty_ones_hold_nothing() -> None:
    pages = tuple(Page(number, text) for number, text in ((4, "ab"), (5, ""), (9, "cde")))
    tokens = DocumentTokens(Document("d.epub", "epub", "chapter", pages, 3, 5), encode)
    assert tokens.page_table().num_tokens == tokens.page_table().num_pages == 0
    for _ in tokens.read_pages():
        pass
    table = tokens.page_table()
    assert (table.num_tokens, table.num_pages, table.unit) == (5, 3, "chapter")
    assert [table.page_of(token) for token in range(5)] == [4, 4, 9, 9, 9]
    assert [table.page_index(token) for token in range(5)] == [0, 0, 2, 2, 2]
    assert [table.page_span(index) for index in range(3)] == [(0, 2), (2, 2), (2, 5)]
    assert [tokens.page_of(token) for token in range(5)] == [table.page_of(token) for token in range(5)]
