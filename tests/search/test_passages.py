"""Passages: how texts are cut, and what a budget holds, in document order."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from ondevice.documents import Document, Page
from ondevice.documents.tokens import DocumentTokens
from ondevice.search.passages import OVERLAP_TOKENS, PASSAGE_TOKENS, Bounds, Passages
from tests.builders.models import byte_tokenizer

ENCODE = byte_tokenizer().encode
TEXT = "\n\n".join(f"Keeper {i} lit lamp {i * 37 % 101} at dusk. The sea lay calm around rock {i}." for i in range(60))
SPANS = ENCODE(TEXT)[1]


def text_of(bounds: tuple[int, int]) -> str:
    return TEXT[SPANS[bounds[0], 0] : SPANS[bounds[1] - 1, 1]].strip()


def test_passages_cover_the_text_overlap_and_end_where_something_ends() -> None:
    bounds = Passages(TEXT, SPANS).bounds
    assert bounds[0][0] == 0
    assert bounds[-1][1] == len(SPANS)
    for (start, stop), (next_start, next_stop) in itertools.pairwise(bounds):
        assert PASSAGE_TOKENS * 3 // 4 <= stop - start <= PASSAGE_TOKENS
        assert OVERLAP_TOKENS // 2 <= stop - next_start <= OVERLAP_TOKENS
        assert next_stop > stop
    assert all(text_of(one).endswith(".") for one in bounds)
    assert all(text_of(one).startswith(("Keeper", "The sea")) for one in bounds[1:])


def test_a_text_without_any_end_is_cut_all_the_same() -> None:
    bounds = Passages("x" * 1000, ENCODE("x" * 1000)[1]).bounds
    assert max(stop - start for start, stop in bounds) == PASSAGE_TOKENS
    assert bounds[-1][1] == 1000


@pytest.mark.parametrize("budget", [200, 500, 900, 1500])
@pytest.mark.parametrize("num_between", [0, 7])
def test_the_best_passages_stand_in_document_order_within_the_budget(budget: int, num_between: int) -> None:
    passages = Passages(TEXT, SPANS)
    scores = np.random.default_rng(budget).random(len(passages.bounds))
    found = passages.best(scores, budget, num_between)
    num_tokens = sum(stop - start for start, stop in found) + num_between * (len(found) - 1)
    assert budget - PASSAGE_TOKENS - num_between < num_tokens <= budget
    assert all(stop < start for (_, stop), (start, _) in itertools.pairwise(found)), "what is shared is once"
    first, last = passages.bounds[int(scores.argmax())]
    assert any(start <= first and last <= stop for start, stop in found)


def test_what_fits_whole_is_there_whole_and_too_small_a_budget_is_filled() -> None:
    passages = Passages(TEXT, SPANS)
    assert passages.best(np.zeros(len(passages.bounds)), 100_000) == [(0, len(SPANS))]
    scores = np.zeros(len(passages.bounds))
    scores[3] = 1.0
    start, stop = passages.bounds[3]
    assert passages.best(scores, 50) == [(start, start + 50)]
    assert passages.best(scores, stop - start) == [(start, stop)]


def test_what_has_no_room_after_all_leaves_the_last_passages_out() -> None:
    passages, asked = Passages(TEXT, SPANS), list[Bounds]()

    def fits(found: Bounds) -> bool:
        asked.append(found)
        return len(asked) > 2

    scores = np.random.default_rng(1).random(len(passages.bounds))
    assert passages.best(scores, 900, fits=fits) == asked[2]
    lengths = [sum(stop - start for start, stop in found) for found in asked]
    assert lengths == sorted(lengths, reverse=True)


def test_the_whole_text_of_a_document_has_its_tokens_where_its_pages_have_them() -> None:
    pages = ("The lamp. ", "", "Ünder the sea\n", "lay a ⚓.")
    document = Document("a", "txt", "part", tuple(Page(i, text) for i, text in enumerate(pages, 1)), num_pages=4)
    tokens = DocumentTokens(document, ENCODE)
    assert tokens.whole()[1].shape == (0, 2)
    list(tokens.read_pages())
    text, spans = tokens.whole()
    assert text == "".join(pages)
    for index, page in enumerate(pages):
        first, last = tokens.page_tokens(index)
        own = tokens.page_spans(index)
        assert [text[a:b] for a, b in spans[first:last]] == [page[a:b] for a, b in own]
