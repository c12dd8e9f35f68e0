"""Two versions of a text, compared: a question for what changed is answered with the sentences, without a model.

A model of any size misses some: it would have to hold every sentence against every other one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

from ondevice.decode.answer import Known
from ondevice.decode.passages import Passage, source
from ondevice.documents.tokens import DocumentTokens
from ondevice.events import Citation, Sources
from ondevice.search.bm25 import terms
from ondevice.search.differences import Difference, Span, asks_for_differences, differences, joined, subject_of
from ondevice.search.places import documents_named

_MOST = 20  # differences of one answer
_FEW_CHARS = 60  # of the words that changed, before their sentences
_MOST_CHARS, _AROUND = 240, 80  # of a quotation, and on either side of what differs in a longer one


def compared(question: str, tokens: DocumentTokens) -> Known | None:
    """The differences that a question asks for of two documents, all of a collection or those that it names.

    None for another question, where the documents are no versions of one text, and where none of the differences has
    what the question is about.

    Args:
        tokens: of a collection.
    """
    if not asks_for_differences(question):
        return None
    members = tokens.members()
    named = documents_named(question, [name for name, *_ in members]) if len(members) > 2 else (0, 1)
    if len(named) != 2 or len(members) < 2:
        return None
    texts = [_Text(tokens, *members[at]) for at in named]
    found = differences(texts[0].whole, texts[1].whole)
    if found is None:
        return None
    names = [text.name for text in texts]
    about = subject_of(question, names)
    chosen = [one for one in found if {*about} <= _terms(texts, one)]
    if found and not chosen:
        return None
    known = _told(tokens, texts, chosen, f" with \u201c{' '.join(about)}\u201d" if about else "")
    empty = [tokens.place(note.page) for note in tokens.notes if tokens.file_of(note.page) in names]
    if not empty:
        return known
    more = f" and {len(empty) - _MOST} more" if len(empty) > _MOST else ""
    return replace(known, text=f"{known.text}\n\nNot compared, for want of text: {', '.join(empty[:_MOST])}{more}.")


class _Text:
    """One of the documents, tokens [start, stop) of the collection; `whole` is its text."""

    def __init__(self, tokens: DocumentTokens, name: str, start: int, stop: int) -> None:
        self.name, self._first = name, tokens.page_index(start)
        pages = tokens.texts[self._first : tokens.page_index(stop - 1) + 1]
        self.whole, self._starts = joined(pages), list(accumulate(map(len, pages), initial=0))

    def passage(self, span: Span, odd: Span) -> tuple[Passage, str]:
        """A sentence as the page of the odd words has it, of a long one the part around them; and all of it, quoted."""
        start, stop = span
        if stop - start > _MOST_CHARS:
            start = self.whole.rfind(" ", start, max(odd[0] - _AROUND, start)) + 1 or start
            end = self.whole.find(" ", min(odd[1], start + _MOST_CHARS - 2 * _AROUND) + _AROUND, stop)
            stop = stop if end < 0 else end
        page = bisect_right(self._starts, odd[0]) - 1
        begin, end = max(start, self._starts[page]), min(stop, self._starts[page + 1])
        said = " ".join(self.whole[start:stop].split())
        quoted = f"\u201c{'…' * (start > span[0])}{said}{'…' * (stop < span[1])}\u201d"
        return Passage(self._first + page, begin - self._starts[page], end - self._starts[page]), quoted


def _terms(texts: Sequence[_Text], one: Difference) -> set[str]:
    spans = zip(texts, (one.first, one.second), strict=True)
    return {term for text, span in spans if span is not None for term in terms(text.whole[slice(*span)])}


def _words(texts: Sequence[_Text], one: Difference) -> str:
    """The words that changed within a sentence, where they are few."""
    if one.first is None or one.second is None or one.first_odd is None or one.second_odd is None:
        return ""
    gone, come = (
        " ".join(text.whole[slice(*odd)].split())
        for text, odd in zip(texts, (one.first_odd, one.second_odd), strict=True)
    )
    if max(len(gone), len(come)) > _FEW_CHARS:
        return ""
    if gone and come:
        return f" \u201c{gone}\u201d \u2192 \u201c{come}\u201d."
    return f" Added: \u201c{come}\u201d." if come else f" Left out: \u201c{gone}\u201d."


def _told(tokens: DocumentTokens, texts: Sequence[_Text], found: Sequence[Difference], about: str) -> Known:
    """The answer with some differences, each sentence with its place and itself as a source."""
    names = f"{texts[0].name} and {texts[1].name}"
    if not found:
        return Known(f"{names} have the same sentences, word for word.", "compared")
    number = f"is 1 difference{about}" if len(found) == 1 else f"are {len(found)} differences{about}"
    text, passages, citations = f"There {number} between {names}:\n", list[Passage](), list[Citation]()
    for at, one in enumerate(found[:_MOST], 1):
        sides = [(0, one.first, one.first_odd), (1, one.second, one.second_odd)]
        there = [texts[which].passage(span, odd) for which, span, odd in sides if span is not None and odd is not None]
        text += f"\n{at}.{_words(texts, one)}"
        for passage, quoted in there:
            place = tokens.place(tokens.page_numbers[passage.page_index])
            text += f" {'In' if len(there) > 1 else 'Only in'} {place}: {quoted}"
            said = tokens.texts[passage.page_index][passage.start : passage.stop]
            citations.append(Citation(len(text), len(passages), said))
            passages.append(passage)
    if len(found) > _MOST:
        text += f"\nand {len(found) - _MOST} more"
    sources = tuple(source(tokens, passage, 1 / len(passages)) for passage in passages)
    return Known(text, "compared", Sources(sources), tuple(citations))
