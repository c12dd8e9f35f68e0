"""Scores of an answer against its references: the metrics of LongBench v1, and the letter of a choice.

Written from their published definitions (THUDM/LongBench, MIT). All scores lie between 0 and 1.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Sequence
from difflib import SequenceMatcher

Score = Callable[[str, str, Sequence[str]], float]  # of an answer, a reference, and all class names of the task

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_LETTER = r"[A-H]"


def qa_f1(answer: str, reference: str, _: Sequence[str] = ()) -> float:
    """F1 of both bags of words, without case, ASCII punctuation and articles."""
    ours, right = (Counter(normalized(text).split()) for text in (answer, reference))
    num_same = (ours & right).total()
    return 2 * num_same / (ours.total() + right.total()) if num_same else 0.0


def holds(text: str, reference: str, _: Sequence[str] = ()) -> float:
    """1 where a text holds the reference as a string, whatever its case, punctuation and articles; else 0."""
    return float(bool(right := normalized(reference)) and right in normalized(text))


def rouge_l(answer: str, reference: str, _: Sequence[str] = ()) -> float:
    """ROUGE-L F as PyPI's `rouge` computes it: over sentences, by the set of words of their common subsequences."""
    ours, right = _sentences(answer), _sentences(reference)
    if not ours or not right:
        return 0.0
    common: set[str] = set()
    for sentence in right:
        for other in ours:
            common.update(_common_words(sentence, other))
    num_ours, num_right = (len({word for one in text for word in one}) for text in (ours, right))
    if not common:
        return 0.0
    precision, recall = len(common) / num_ours, len(common) / num_right
    return 2 * precision * recall / (precision + recall + 1e-8)


def classification(answer: str, reference: str, classes: Sequence[str] = ()) -> float:
    """One over the number of classes that the answer names, the right one among them."""
    named = [name for name in classes if name in answer]
    at = 0
    while at < len(named):  # as published: the list shrinks under its own loop, so that a neighbour may stay
        if named[at] in reference and named[at] != reference:
            named.remove(named[at])
        at += 1
    return 1 / len(named) if reference in named else 0.0


def count(answer: str, reference: str, _: Sequence[str] = ()) -> float:
    """Share of the numbers in the answer that are the right one."""
    numbers = re.findall(r"\d+", answer)
    return numbers.count(str(reference)) / len(numbers) if numbers else 0.0


def retrieval(answer: str, reference: str, _: Sequence[str] = ()) -> float:
    """As `count`, for the number of the right paragraph."""
    match = re.search(r"Paragraph (\d+)", reference)
    return count(answer, match[1]) if match else 0.0


def code_similarity(answer: str, reference: str, _: Sequence[str] = ()) -> float:
    """Similarity of the first line of code and the right one: fuzzywuzzy's ratio."""
    line = first_code_line(answer) or ""
    if not line or not reference:
        return 0.0
    return round(100 * SequenceMatcher(None, line, reference).ratio()) / 100


def first_line(answer: str) -> str:
    """The line that few-shot tasks are scored by."""
    return answer.lstrip("\n").split("\n")[0]


def first_code_line(text: str) -> str | None:
    """The first line that holds neither a mark of Markdown nor of a comment; None: there is none."""
    lines = text.lstrip("\n").split("\n")
    return next((line for line in lines if not any(mark in line for mark in ("`", "#", "//"))), None)


def best(score: Score, answer: str, references: Sequence[str], classes: Sequence[str] = ()) -> float:
    """The score against the reference that fits best."""
    return max((score(answer, reference, classes) for reference in references), default=0.0)


def chosen_letter(answer: str, choices: Sequence[str]) -> str:
    """The letter that an answer to a multiple-choice question names, or whose text it gives; "" where it does neither.

    Args:
        choices: the texts, of A, B, and so on.
    """
    for pattern in (rf"\(({_LETTER})\)", rf"^\W*({_LETTER})(?:[.):,]|\s*$)", rf"\banswer is:?\s+\(?({_LETTER})\b"):
        if match := re.search(pattern, answer):
            return match[1]
    text = normalized(answer)
    given = [index for index, choice in enumerate(choices) if normalized(choice) and normalized(choice) in text]
    return chr(ord("A") + given[0]) if len(given) == 1 else ""


def normalized(text: str) -> str:
    """Lower case, without ASCII punctuation and articles, white space folded."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def _sentences(text: str) -> list[list[str]]:
    """As `rouge` cuts them: what lies between two full stops, if only blanks, has one empty word."""
    return [part.split() or [""] for part in text.split(".") if part]


def _common_words(reference: Sequence[str], answer: Sequence[str]) -> list[str]:
    """The words of one longest common subsequence; of several the one that `rouge` finds."""
    lengths = [[0] * (len(answer) + 1) for _ in range(len(reference) + 1)]
    for i, word in enumerate(reference, 1):
        for j, other in enumerate(answer, 1):
            lengths[i][j] = lengths[i - 1][j - 1] + 1 if word == other else max(lengths[i - 1][j], lengths[i][j - 1])
    words, i, j = list[str](), len(reference), len(answer)
    while i and j:
        if reference[i - 1] == answer[j - 1]:
            words.append(reference[i - 1])
            i, j = i - 1, j - 1
        elif lengths[i - 1][j] > lengths[i][j - 1]:
            i -= 1
        else:
            j -= 1
    return words
