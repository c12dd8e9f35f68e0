import numpy as np
import pytest

from ondevice.search.bm25 import blocks_sharing_words
from tests.builders.models import byte_tokenizer


def test_rare_words_come_before_common_ones():
    document = np.full(80, 1)
    document[::8] = 2  # in every block
    document[33] = 3
    document[[50, 66]] = 4
    assert blocks_sharing_words(document, np.array([2, 3, 4]), 8, 3) == [4, 6, 8]
    assert blocks_sharing_words(document, np.array([3]), 8, 9) == [4], "no block without any of them"


def test_a_repeated_word_counts_more_but_not_as_often():
    document = np.zeros(64, int)
    document[[1, 17, 18, 33]], document[34] = 5, 6
    assert blocks_sharing_words(document, np.array([5, 6]), 16, 4) == [2, 1, 0]


@pytest.mark.parametrize(
    ("document", "question"), [([], [1]), ([1, 2], []), ([1, 2], [3]), ([], [])], ids=["empty", "mute", "other", "none"]
)
def test_nothing_in_common(document, question):
    assert blocks_sharing_words(np.array(document, int), np.array(question, int), 8, 4) == []


def test_ids_without_a_word_are_not_looked_for():
    assert blocks_sharing_words(np.array([-1, -1, 0, 1]), np.array([-1]), 2, 4) == []
    assert blocks_sharing_words(np.array([-1, -1, 0, 1]), np.array([-1, 0]), 2, 4) == [1]


def test_words_of_a_tokenizer_know_no_case():
    tokenizer = byte_tokenizer()
    ids, _ = tokenizer.encode("Aab.")
    big, small, other, mark = tokenizer.words(ids)
    assert big == small >= 0
    assert other not in {-1, small}
    assert mark == -1


def test_an_id_that_only_the_model_has_is_no_word():
    tokenizer = byte_tokenizer()
    assert tokenizer.words(np.array([tokenizer.vocab_size, 2**31 - 1], np.int32)).tolist() == [-1, -1]
