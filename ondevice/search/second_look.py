"""The second look of a word search: a question over two places names one of them, and what stands there the other."""

from __future__ import annotations

import re

from ondevice.search.bm25 import BM25, terms

_MOST_NAMES = 12
_SENTENCE = re.compile(r"(?<=[.!?…。！？])\s*|\n")  # noqa: RUF001
_WORD = re.compile(r"(?<![\w'’-])[^\W\d_][\w'’-]+")  # noqa: RUF001


def names_beside(question: str, passage: str, index: BM25) -> str:
    """Names in the sentences of a passage that share words with a question, which lacks them; the next query.

    Args:
        index: of all passages. Of the question's words only those count that are rarer than its others.
    """
    asked = index.weights(question)
    usual = sum(asked.values()) / max(len(asked), 1)
    found: dict[str, float] = {}
    for sentence in _SENTENCE.split(passage):
        shared = sum(asked[term] for term in {*terms(sentence)} & asked.keys() if asked[term] > usual)
        names = " ".join(word for word in _WORD.findall(sentence) if word[0].isupper()) if shared else ""
        for term, weight in index.weights(names).items():
            if term not in asked:
                found[term] = max(found.get(term, 0.0), shared * weight)
    return " ".join(sorted(found, key=lambda term: -found[term])[:_MOST_NAMES])
