"""The second look: which names of a passage lead on, and that a search finds the second place by them."""

from __future__ import annotations

from ondevice.search.bm25 import BM25, names_beside

_OPERA = "The opera Marfisa was written by Otto Lindqvist. The weather in Bergen was fine. Tickets cost Four crowns."
_BIRTH = "Lindqvist was born in the village of Saltdal."
_OTHERS = ["The birds of the region are many.", "Where the river was born nobody knows.", "The opera house is old."]


def test_names_come_from_sentences_with_rare_words_of_the_question():
    index = BM25([_OPERA, _BIRTH, *_OTHERS])
    assert set(names_beside("Where was the writer of the opera Marfisa born?", _OPERA, index).split()) == {
        "otto",
        "lindqvist",
    }, "neither what the question has, nor what stands beside its common words alone"


def test_names_that_no_other_passage_has_come_first():
    index = BM25([_OPERA, _BIRTH, "Otto sang.", "Otto left.", *_OTHERS])
    assert names_beside("By whom was Marfisa written?", _OPERA, index).split()[:2] == ["lindqvist", "otto"]


def test_a_passage_without_names_or_words_of_the_question_leads_nowhere():
    index = BM25([_OPERA, _BIRTH, *_OTHERS])
    assert names_beside("Where was the writer of Marfisa born?", "the marfisa was heard by few", index) == ""
    assert names_beside("Who was Zoroaster?", _OPERA, index) == ""
    assert names_beside("", "", index) == ""
