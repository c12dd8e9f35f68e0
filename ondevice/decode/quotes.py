"""Quotations: a request for the words of a text is answered with its sentences, found by their words, without a model.

A small model that is asked for them says that there are none, or makes them up.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from ondevice.decode.answer import Known
from ondevice.decode.denial import NO_SENTENCE
from ondevice.decode.passages import Passage, source
from ondevice.documents.tokens import DocumentTokens
from ondevice.events import Citation, Sources
from ondevice.search.bm25 import BM25, terms
from ondevice.search.sentences import sentences

_PART = (
    r"(?:parts?|passages?|clauses?|sentences?|paragraphs?|provisions?|wording|lines?|places?|quot(?:e|ation)s?"
    r"|stellen?|s[aä]tze?|klauseln?|abs[aä]tze?|zitate?)\b"
)
_TEXT = r"(?:document|text|paper|book|article|report|contract|agreement|file|letter|manual|story|novel|lease|policy)\b"
# "In one sentence" tells how to answer, and a part number is no part.
_NO_PART = r"(?:in (?:an?|one|two|three|\d|einem|zwei)\b|one-|a (?:short|single)\b)"
_ASKS = re.compile(
    r"(?i)\A\W*(?:please\s+|can you\s+|could you\s+)?(?:(?:highlight|quote|cite|extract|copy|find(?! out)|show|give"
    rf"|point out|zitiere?|zeige?|finde|gib)\b(?:(?!\b{_NO_PART})[^.?!]){{0,40}}?\b(?<!-){_PART}"
    rf"(?! (?:numbers?|of birth|items?)\b)|where (?:does|do|in) (?:(?:the|this)(?:\s+\w+)?\s+{_TEXT}|it)\s+"
    r"(?:does it\s+)?(?:says?|mentions?|states?|talks?|discuss(?:es)?)\b)"
)
# Further words that ask, and say nothing of what for.
_ASIDE = re.compile(
    rf"(?i)\b(?:th(?:is|e) {_TEXT}|(?:related|relating) to|details:|(?:where|that|which) it\b)|\(if any\)"
    r"|\b(?:that|which)\s+(?:should|must|needs? to|ought to)\s+be\s+(?:reviewed|checked|read|considered|looked at)"
    r"(?:\s+by\s+(?:(?:an?|the|my|our)\s+)?\w+)?"
)
_FIRST = re.compile(
    r"(?i)\A(?:\W*\b(?:about|on|for|that|which|who|with|where|of|to|in|from|regarding|concerning|the|an?|says?|saying"
    r"|mentions?|mentioning|über|zu[rm]?|mit|von|der|die|das)\b)+"
)
_NAMED = re.compile(r"[\"\u201c]([^\"\u201c\u201d]{2,80})[\"\u201d]")  # what a request names in quotation marks
_FEWEST_CHARS, _MOST_CHARS = 30, 800  # of a quotation: a shorter one goes with the next, a longer one is cut at a line
_WORD = re.compile(r"[^\W\d_]{4,}")  # a heading has none that begins small
_HEADING_CHARS = 80
_MOST, _LEAST = 5, 0.9  # sentences of one answer; the score that makes one as good as the best
_RARE = 0.1  # of the sentences: a term that fewer have tells what a request is about
_TERMS, _COVERAGE = 2, 0.5  # of the best sentence: rare terms of the request, or else its share of all of them
_OF_NAME = 0.34  # or else its share of the words that are named
_NAME_MORE = 0.5  # times the score of these words, beside that of all


def subject_of(question: str) -> str:
    """The subject of a request for words, such as "late payment"; "" for any other question."""
    asked = _ASKS.match(question)
    return _FIRST.sub("", _ASIDE.sub(" ", question[asked.end() :])).strip(" ?.!:\n") if asked else ""


class Quotations:
    """The sentences of a document whose text is kept, page by page, and an index of their words."""

    def __init__(self, tokens: DocumentTokens) -> None:
        self._tokens = tokens
        self._places = [Passage(page, *span) for page, text in enumerate(tokens.texts) for span in _cut(text)]
        self._index = BM25([self._text(place) for place in self._places])

    def answer(self, question: str, subject: str) -> Known | None:
        """The best sentences for the subject of a question, in the document's order, each with its place.

        None where too few of the question's words stand anywhere for it to be in the text's language.
        """
        found = self._find(subject)
        if not found:
            if self._index.coverage(question) is None:
                return None
            return Known(f"{NO_SENTENCE} \u201c{_named(subject) or subject}\u201d. Ask with other words.", "quoted")
        ranked = sorted(found, key=lambda one: -one[1])[:_MOST]
        total = sum(score for _, score in ranked)
        sources = tuple(source(self._tokens, place, score / total) for place, score in ranked)
        rank = {place: at for at, (place, _) in enumerate(ranked)}
        lines, citations = list[str](), list[Citation]()
        for place in (place for place, _ in found if place in rank):
            where = (
                f" ({self._tokens.place(self._tokens.page_numbers[place.page_index])})"
                if self._tokens.num_pages > 1
                else ""
            )
            lines.append(f"\u201c{' '.join(self._text(place).split())}\u201d{where}")
            citations.append(Citation(len("\n".join(lines)), rank[place], self._text(place)))
        if (num_more := len(found) - len(ranked)) > 0:
            lines.append(f"and {num_more} more with these words")
        return Known("\n".join(lines), "quoted", Sources(sources), tuple(citations))

    def _find(self, subject: str) -> list[tuple[Passage, float]]:
        """Sentences as good as the best one, or with all of the subject's words that it has, in the text's order."""
        weights, named = self._index.weights(subject), _named(subject)
        if not weights:
            return []
        scores = self._index.scores(subject) + _NAME_MORE * self._index.scores(named)
        best = int(scores.argmax())
        said = weights.keys() & {*terms(self._text(self._places[best]))}
        num_rare = sum(self._index.share(term) < _RARE for term in said)
        is_like = num_rare >= _TERMS or (self._index.coverage(subject) or 0.0) >= _COVERAGE
        if not is_like and (self._index.coverage(named) or 0.0) < _OF_NAME:
            return []
        alike = self._index.having(said) | {*np.flatnonzero(scores >= _LEAST * scores[best]).tolist()}
        return [(self._places[at], float(scores[at])) for at in sorted(alike)]

    def _text(self, place: Passage) -> str:
        return self._tokens.texts[place.page_index][place.start : place.stop]


def _is_heading(text: str) -> bool:
    words = _WORD.findall(text) if len(text.strip()) < _HEADING_CHARS else []
    return bool(words) and all(word[0].isupper() for word in words)


def _named(subject: str) -> str:
    named = _NAMED.search(subject)
    return "" if named is None else named[1]


def _cut(text: str) -> Iterator[tuple[int, int]]:
    """Characters [start, stop) of the sentences of a page, as they are quoted."""
    begin: int | None = None
    for start, stop in sentences(text):
        begin = start if begin is None else begin
        if stop < len(text) and (len(text[begin:stop].strip()) < _FEWEST_CHARS or _is_heading(text[begin:stop])):
            continue
        while stop - begin > _MOST_CHARS:
            end = text.rfind("\n", begin + 1, begin + _MOST_CHARS)
            end = end if end > begin else begin + _MOST_CHARS
            yield begin, begin + len(text[begin:end].rstrip())
            begin = end
        yield begin, begin + len(text[begin:stop].rstrip())
        begin = None
