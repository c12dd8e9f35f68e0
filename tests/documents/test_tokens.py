"""The tokens of a document: what their arrays hold and give back, and what they cost."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ondevice.documents import Document, Page
from ondevice.documents.tokens import DocumentTokens, Int32Array
from ondevice.errors import DocumentTooLarge

# Lengths of tokens, and of what lies between them: -1 shares the characters of the token before it.
STRETCHES = st.lists(
    st.tuples(st.sampled_from([1, 3, 4, 127, 128, 40_000]), st.sampled_from([0, 0, 0, -1, 2, 300])), max_size=12
)


def words(text: str) -> tuple[Int32Array, Int32Array]:
    """A token for every four characters, as in English."""
    starts = np.arange(0, len(text), 4, dtype=np.int32)
    return starts + 7, np.stack((starts, np.minimum(starts + 4, len(text)).astype(np.int32)), axis=1)


def document(pages: tuple[Page, ...]) -> Document:
    return Document("d.txt", "txt", "part", pages, len(pages), 1)


def spans_of(stretches: list[tuple[int, int]]) -> Int32Array:
    spans, end = [(0, 0)][:0], 0
    for length, gap in stretches:
        begin = spans[-1][0] if gap < 0 and spans else end + max(gap, 0)
        spans.append((begin, begin + length))
        end = begin + length
    return np.array(spans, np.int32).reshape(-1, 2)


@given(st.lists(STRETCHES, min_size=1, max_size=6), st.integers(0, 80), st.integers(0, 80))
def test_every_token_comes_back_as_it_was(pages: list[list[tuple[int, int]]], start: int, stop: int) -> None:
    spans = [spans_of(stretches) for stretches in pages]
    first = np.concatenate(([0], np.cumsum([len(part) for part in spans])))

    def encode(text: str) -> tuple[Int32Array, Int32Array]:
        index = int(text)
        return np.arange(first[index], first[index + 1], dtype=np.int32), spans[index]

    texts = [str(index).ljust(int(part.max(initial=1))) for index, part in enumerate(spans)]
    made = DocumentTokens(document(tuple(Page(9 + index, text) for index, text in enumerate(texts))), encode)
    assert list(made.read_pages()) == list(range(1, len(pages) + 1))
    state = made.state()
    # What has no token is not saved.
    restored = [DocumentTokens.restore(made.document, encode, state, [], 1 << 20)] if first[-1] else []
    for tokens in (made, *restored):
        assert tokens.num_total == first[-1]
        assert tokens.ids(start, stop).tolist() == list(range(first[-1]))[start:stop]
        for index, expected in enumerate(spans):
            assert tokens.page_tokens(index) == (first[index], first[index + 1])
            assert tokens.page_spans(index).tolist() == expected.tolist()
        assert {name: array.tolist() for name, array in tokens.state().items()} == {
            name: array.tolist() for name, array in state.items()
        }
    # The form in which saved pots hold them.
    assert state["ids"].dtype == state["spans"].dtype == state["page_starts"].dtype == np.int32
    assert state["spans"].shape == (first[-1], 2)


def test_a_token_costs_a_few_bytes_also_while_they_grow() -> None:
    pages = tuple(Page(number, "word" * 750) for number in range(1, 2001))
    tokens = DocumentTokens(document(pages), words)
    assert tokens.ensure(1)
    tracemalloc.start()
    for _ in tokens.read_pages():
        pass
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert tokens.num_tokens == 1_500_000
    assert peak < 7 * tokens.num_tokens


def test_tokens_that_do_not_fit_into_memory_are_refused_while_they_grow() -> None:
    num_read = 0

    def letters(text: str) -> tuple[Int32Array, Int32Array]:
        nonlocal num_read
        num_read += 1
        starts = np.arange(len(text), dtype=np.int32)
        return starts, np.stack((starts, starts + 1), axis=1)

    pages = tuple(Page(number, "x" * 3000) for number in range(1, 2001))
    tokens = DocumentTokens(document(pages), letters, free_memory=lambda: 10_000_000)
    with pytest.raises(DocumentTooLarge, match=r"need about 1\d MB; 2\d MB of memory are free.*\(d.txt\)"):
        list(tokens.read_pages())
    assert 300 < num_read < 700, "as soon as the bound is passed"


def test_a_page_that_cannot_be_encoded_in_the_free_memory_is_not_begun() -> None:
    def never(text: str) -> tuple[Int32Array, Int32Array]:
        raise AssertionError(text[:1])

    tokens = DocumentTokens(document((Page(1, "x" * 1_000_000),)), never, free_memory=lambda: 30_000_000)
    with pytest.raises(DocumentTooLarge):
        list(tokens.read_pages())


def test_a_stream_keeps_next_to_nothing_of_what_is_read() -> None:
    num_pages = 5_000

    def endless() -> Iterator[Page]:
        for number in range(1, num_pages + 1):
            yield Page(number, f"{number:040d}")

    tokens = DocumentTokens(Document("-", "txt", "part", endless()), words, free_memory=lambda: 0)
    assert tokens.ensure(1000)
    tracemalloc.start()
    for start in range(0, 10 * num_pages, 500):
        tokens.ensure(start + 500)
        assert tokens.ids(start, start + 500).tolist() == [7 + 4 * (token % 10) for token in range(start, start + 500)]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert not tokens.ensure(10 * num_pages + 1)
    assert tokens.page_of(10 * num_pages - 1) == num_pages
    assert peak < 40 * num_pages
