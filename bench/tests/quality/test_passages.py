"""Retrieval: how texts are cut, BM25 against values computed by hand, and what a budget holds, in document order."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ondevice_bench.quality.bm25 import BM25, K1, B
from ondevice_bench.quality.passages import OVERLAP_TOKENS, PASSAGE_TOKENS, Passages
from tests.builders.models import byte_tokenizer

ENCODE = byte_tokenizer().encode
TEXT = "\n\n".join(f"Keeper {i} lit lamp {i * 37 % 101} at dusk. The sea lay calm around rock {i}." for i in range(60))


def test_passages_cover_the_text_overlap_and_end_where_something_ends() -> None:
    passages = Passages(TEXT, ENCODE)
    assert passages.bounds[0][0] == 0
    assert passages.bounds[-1][1] == len(ENCODE(TEXT)[0])
    for (start, stop), (next_start, next_stop) in zip(passages.bounds, passages.bounds[1:], strict=False):
        assert PASSAGE_TOKENS * 3 // 4 <= stop - start <= PASSAGE_TOKENS
        assert OVERLAP_TOKENS // 2 <= stop - next_start <= OVERLAP_TOKENS
        assert next_stop > stop
    assert all(text.endswith(".") for text in passages.texts)
    assert all(text.startswith(("Keeper", "The sea")) for text in passages.texts[1:])


def test_a_text_without_any_end_is_cut_all_the_same() -> None:
    passages = Passages("x" * 1000, ENCODE)
    assert max(stop - start for start, stop in passages.bounds) == PASSAGE_TOKENS
    assert passages.bounds[-1][1] == 1000


def test_the_best_passages_stand_in_document_order_within_the_budget() -> None:
    passages = Passages(TEXT, ENCODE)
    for budget in (200, 500, 900, 1500):
        scores = np.random.default_rng(budget).random(len(passages.texts))
        found = passages.best(scores, budget)
        num_tokens = len(ENCODE(found)[0])
        assert budget - PASSAGE_TOKENS < num_tokens <= budget
        parts = found.split("\n\n")
        places = [TEXT.index(part) for part in parts]
        assert places == sorted(places)
        assert len(set(parts)) == len(parts), "what passages share is there once"
        assert passages.texts[int(scores.argmax())] in found


def test_what_fits_whole_is_there_whole_and_too_small_a_budget_is_filled() -> None:
    passages = Passages(TEXT, ENCODE)
    assert passages.best(np.zeros(len(passages.texts)), 100_000) == TEXT
    scores = np.zeros(len(passages.texts))
    scores[3] = 1.0
    cut = passages.best(scores, 50)
    assert 40 < len(ENCODE(cut)[0]) <= 50
    assert passages.texts[3].startswith(cut)


def test_bm25_is_the_published_sum() -> None:
    index = BM25(["the red boat", "The blue boat and the blue bird", "a fish"])
    lengths = np.array([3, 7, 2])
    norms = K1 * (1 - B + B * lengths / 4)
    blue = math.log(1 + (3 - 1 + 0.5) / 1.5) * 2 * (K1 + 1) / (2 + norms[1])
    boat = math.log(1 + (3 - 2 + 0.5) / 2.5) * (K1 + 1) / (1 + norms)
    assert index.scores("Blue boat?") == pytest.approx([boat[0], blue + boat[1], 0.0])
    assert index.scores("zebra") == pytest.approx([0.0, 0.0, 0.0])


def test_bm25_finds_the_passage_that_a_question_is_about() -> None:
    passages = Passages(TEXT, ENCODE)
    found = passages.best(BM25(passages.texts).scores("Which lamp did keeper 41 light?"), 250)
    assert "Keeper 41 lit lamp 2 " in found
