"""BM25 against values computed by hand, and how words are compared."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ondevice.search.bm25 import BM25, K1, B, own_terms, terms, word_parts


def test_bm25_is_the_published_sum() -> None:
    index = BM25(["the red boat", "The blue boat and the blue bird", "a fish"])
    norms = K1 * (1 - B + B * np.array([3, 7, 2]) / 4)
    blue = math.log(1 + (3 - 1 + 0.5) / 1.5) * 2 * (K1 + 1) / (2 + norms[1])
    boat = math.log(1 + (3 - 2 + 0.5) / 2.5) * (K1 + 1) / (1 + norms)
    assert index.scores("Blue boat, blue?") == pytest.approx([boat[0], blue + boat[1], 0.0])
    assert index.scores("zebra") == pytest.approx([0.0, 0.0, 0.0])


@pytest.mark.parametrize("passages", [[], [""], ["", "..."]])
def test_texts_without_a_word_share_none(passages: list[str]) -> None:
    assert not BM25(passages).scores("a lamp").any()
    assert not BM25(["a lamp"]).scores("?!").any()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("The KEEPER", "the keeper"),
        ("1,234,567 lamps", "1234567 lamps"),
        ("ﬁre", "fire"),
        ("lamp_oil", "lamp oil"),
        ("STRASSE", "straße"),
    ],
)
def test_what_is_written_in_two_ways_is_the_same_term(one: str, other: str) -> None:
    assert list(terms(one)) == list(terms(other))


def test_numbers_in_a_list_stay_apart() -> None:
    assert list(terms("12,5 and 3,1415")) == ["12", "5", "and", "3", "1415"]


def test_scripts_without_blanks_are_searched_by_pairs() -> None:
    index = BM25(["灯台守は灯りをともした", "海は静かだった", "灯"])
    assert index.scores("灯台").argmax() == 0
    assert index.scores("静か").argmax() == 1
    assert index.scores("灯").argmax() == 2


@given(st.lists(st.text(max_size=40), max_size=8), st.text(max_size=40))
def test_scores_are_finite_and_never_negative(passages: list[str], question: str) -> None:
    scores = BM25(passages).scores(question)
    assert scores.shape == (len(passages),)
    assert np.isfinite(scores).all()
    assert (scores >= 0).all()
    coverage = BM25(passages).coverage(question)
    assert coverage is None or 0 <= coverage <= 1


def test_coverage_is_the_share_of_rarity_that_one_passage_has() -> None:
    index = BM25(["the red boat", "the blue boat", "the fish"])
    rare, both, every, absent = (math.log(1 + (3 - held + 0.5) / (held + 0.5)) for held in (1, 2, 3, 0))
    assert index.coverage("red fish") == 0.5, "they stand apart"
    assert index.coverage("What is the red boat?") == 1.0, "what only asks does not count"
    assert index.coverage("the boat of Halvard") == pytest.approx((every + both) / (every + both + 2 * absent))
    assert index.coverage("red red herring") == pytest.approx(rare / (rare + absent))


def test_coverage_of_another_language_or_of_no_words_is_not_known() -> None:
    index = BM25(["the red boat", "the blue boat"])
    assert index.coverage("Welche Farbe hat das rote Boot?") is None
    assert index.coverage("What is it?") is None
    assert index.coverage("?") is None


def test_a_question_in_the_language_of_the_text_is_covered_by_nothing_where_no_word_stands_there() -> None:
    index = BM25(
        ["The tenant pays the rent of the flat, and the deposit is due.", "Siemens and the heating of the flat."]
    )
    assert index.coverage("When was Mozart born?") == 0
    assert index.coverage("Wann wurde Siemens gegr\u00fcndet?") is None
    assert index.coverage("Quote Siemens") is not None
    assert (own_terms("and in 2023?"), own_terms("Who else pays the rent?")) == (["2023"], ["else", "pays", "rent"])


def test_what_only_asks_in_german_does_not_count() -> None:
    index = BM25(["Die Ruhezeit der Fahrer und Boten.", "Eine Pause gilt als Ruhezeit.", "Der Lohn ist zu zahlen."])
    assert index.coverage("Wie lange darf man die Ruhezeit ab wann nehmen?") == index.coverage("Ruhezeit nehmen")
    assert index.coverage("How long is the man hat of alt?") == index.coverage("long man hat alt"), "English words"
    assert own_terms("Ab welchem Alter darf man w\u00e4hlen?") == ["alter", "w\u00e4hlen"]


def test_parts_of_words_are_shared_by_inflected_and_joined_ones() -> None:
    assert [*word_parts("Urlaubs 2021 12,345 am")] == ["urla", "rlau", "laub", "aubs", "2021", "12345", "am"]
    index = BM25(["Der Urlaub betr\u00e4gt 24 Werktage.", "Der Lohn wird monatlich gezahlt.", "a12345b"], word_parts)
    assert index.scores("Urlaubstage").argmax() == 0
    assert not index.scores("23456").any(), "no number within another"
