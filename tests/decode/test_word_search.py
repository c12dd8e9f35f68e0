import numpy as np
import pytest

from ondevice.decode.word_search import blocks_sharing_words
from tests.builders.models import byte_tokenizer

WORDS = np.arange(100)


def test_rare_words_come_before_common_ones():
    document = np.full(80, 1)
    document[::8] = 2  # in every block
    document[33] = 3
    document[[50, 66]] = 4
    assert blocks_sharing_words(document, np.array([2, 3, 4]), WORDS, 8, 3) == [4, 6, 8]
    assert blocks_sharing_words(document, np.array([3]), WORDS, 8, 9) == [4], "no block without any of them"


def test_a_repeated_word_counts_more_but_not_as_often():
    document = np.zeros(64, int)
    document[[1, 17, 18, 33]], document[34] = 5, 6
    assert blocks_sharing_words(document, np.array([5, 6]), WORDS, 16, 4) == [2, 1, 0]


@pytest.mark.parametrize(
    ("document", "question"), [([], [1]), ([1, 2], []), ([1, 2], [3]), ([], [])], ids=["empty", "mute", "other", "none"]
)
def test_nothing_in_common(document, question):
    assert blocks_sharing_words(np.array(document, int), np.array(question, int), WORDS, 8, 4) == []


def test_ids_without_a_word_are_not_looked_for():
    word_of = np.array([-1, 0, 0, 1])
    assert blocks_sharing_words(np.array([0, 0, 1, 3]), np.array([0]), word_of, 2, 4) == []
    assert blocks_sharing_words(np.array([0, 0, 1, 3]), np.array([2]), word_of, 2, 4) == [1], "1 and 2 are one word"


def test_words_of_a_tokenizer_know_no_case():
    tokenizer = byte_tokenizer()
    (big, small, other, mark), _ = tokenizer.encode("Aab.")
    assert tokenizer.word_of.shape == (tokenizer.vocab_size,)
    assert tokenizer.word_of[big] == tokenizer.word_of[small] >= 0
    assert tokenizer.word_of[other] not in {-1, tokenizer.word_of[small]}
    assert tokenizer.word_of[mark] == -1
