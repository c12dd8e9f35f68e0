"""The metrics of LongBench against values computed by hand, and which choice an answer names."""

from __future__ import annotations

import pytest

from ondevice_bench.quality.scores import (
    best,
    chosen_letter,
    classification,
    code_similarity,
    count,
    first_code_line,
    first_line,
    normalized,
    qa_f1,
    retrieval,
    rouge_l,
)


@pytest.mark.parametrize(
    ("answer", "reference", "expected"),
    [
        ("The Eiffel Tower!", "eiffel tower", 1.0),
        ("in the eiffel tower", "eiffel tower", 2 * (2 / 3) * 1 / (2 / 3 + 1)),
        ("red red blue", "red blue blue", 2 / 3),  # each word counts as often as both have it
        ("five", "ten", 0.0),
        ("", "ten", 0.0),
        ("the", "a", 0.0),
    ],
)
def test_f1_is_of_both_bags_of_words(answer: str, reference: str, expected: float) -> None:
    assert qa_f1(answer, reference) == pytest.approx(expected)


def test_words_are_normalised_as_published() -> None:
    assert normalized("  The  cat's   an-Other, A ") == "cats another"


@pytest.mark.parametrize(
    ("answer", "reference", "expected"),
    [
        # Words in common in order: the, sat, mat; of 3 in the answer and 5 different ones in the reference.
        ("the sat mat", "the cat sat on the mat", 2 * (3 / 5) / (1 + 3 / 5)),
        ("mat sat", "sat mat", 0.5),  # one of two, as their order differs
        ("a b. c d", "c d. a b", 1.0),  # sentences are compared each with each
        ("a a a a", "a", 1.0),  # words are counted once
        # What lies between two full stops, if only a blank, has an empty word.
        ("a. .b", "a", 2 * (1 / 3) / (1 + 1 / 3)),
        ("", "a", 0.0),
        ("...", "a", 0.0),
        ("x", "y", 0.0),
    ],
)
def test_rouge_l_is_that_of_the_package(answer: str, reference: str, expected: float) -> None:
    assert rouge_l(answer, reference) == pytest.approx(expected, abs=1e-7)


def test_classes_that_the_answer_names_share_the_point() -> None:
    classes = ["Date", "City", "Animal"]
    assert classification("City", "City", classes) == 1.0
    assert classification("City or Date", "City", classes) == 0.5
    assert classification("Animal", "City", classes) == 0.0
    assert classification("none of them", "City", classes) == 0.0


def test_classes_within_the_reference_are_dropped_as_published() -> None:
    assert classification("Other entity", "Other entity", ["entity", "Other entity"]) == 1.0
    # Two neighbours within the reference: the loop skips the second of them.
    assert classification("Other entity", "Other entity", ["Other", "entity", "Other entity"]) == 0.5


def test_numbers_count_by_the_share_that_is_right() -> None:
    assert count("There are 15.", "15") == 1.0
    assert count("15 or 16, so 15", "15") == pytest.approx(2 / 3)
    assert count("150", "15") == 0.0
    assert count("many", "15") == 0.0
    assert retrieval("Paragraph 3 or 4", "Paragraph 3") == 0.5
    assert retrieval("Paragraph 30", "Paragraph 3") == 0.0


def test_code_is_the_first_line_without_marks() -> None:
    assert first_code_line("\n\n```python\n# note\n    x = 1\ny = 2") == "    x = 1"
    assert first_code_line("# only\n// comments") is None
    assert code_similarity("\n# note\nabcd\nzzzz", "abcd") == 1.0
    # `abcd` and `abxd` share ab and d: 2 * 3 of 8 letters.
    assert code_similarity("abcd", "abxd") == 0.75
    assert code_similarity("    abcd", "abcd") == pytest.approx(0.67)  # 8 of 12, in whole per cent
    assert code_similarity("# only", "abcd") == code_similarity("abcd", "") == 0.0


def test_the_first_line_and_the_best_reference_count() -> None:
    assert first_line("\n\nParis\nQuestion: next") == "Paris"
    assert best(qa_f1, "paris", ["London", "Paris"]) == 1.0
    assert best(qa_f1, "paris", []) == 0.0


@pytest.mark.parametrize(
    ("answer", "letter"),
    [
        ("(C)", "C"),
        ("The right one is (B) blue.", "B"),
        ("B", "B"),
        ("B.", "B"),
        ("B) a blue one", "B"),
        ("The answer is D", "D"),
        ("It is a blue boat", "B"),
        ("A person", ""),  # an article, no letter
        ("red and blue boat", ""),
        ("", ""),
    ],
)
def test_the_letter_of_an_answer(answer: str, letter: str) -> None:
    assert chosen_letter(answer, ["red", "blue boat", "green", "white"]) == letter
