"""The second look: by which words a sentence leads on, and how much of a question it has."""

from __future__ import annotations

import pytest

from ondevice.search.bm25 import BM25, beside, terms

_WRITTEN = "The opera Marfisa was written by Otto Lindqvist in Bergen."
_BIRTH = "Lindqvist was born in the village of Saltdal."
_OTHERS = [
    "The birds of the region are many.",
    "Where the river was born nobody knows.",
    "The opera house in the town is old.",
    "There was snow in the hills.",
    "In the end the house was sold.",
]
_INDEX = BM25([_WRITTEN, _BIRTH, *_OTHERS])


def test_a_sentence_leads_on_by_rare_words_that_the_question_lacks_and_names_are_told_apart():
    words, names = beside("Who composed the opera Marfisa?", _WRITTEN, _INDEX)
    assert words.split() == ["written", "by", "otto", "lindqvist", "bergen"], "of the others most passages have"
    assert names.split() == ["otto", "lindqvist", "bergen"]


@pytest.mark.parametrize(("question", "sentence"), [("", ""), ("Who?", ""), ("Who was Zoroaster?", "Nothing known.")])
def test_a_sentence_without_known_words_leads_nowhere(question: str, sentence: str):
    assert beside(question, sentence, _INDEX) == ("", "")


def test_what_a_sentence_shares_with_a_question_is_the_weight_of_their_words_each_once():
    question = "Where was the writer of Marfisa, of Marfisa, born?"
    weights = _INDEX.weights(question)
    shared = {*terms(_BIRTH)} & {*terms(question)}
    assert shared == {"was", "of", "born", "the"}
    assert _INDEX.shared(weights, f"{_BIRTH} {_BIRTH}") == pytest.approx(sum(weights[term] for term in shared))
    assert _INDEX.shared(weights, "") == _INDEX.shared(_INDEX.weights(""), _BIRTH) == 0
