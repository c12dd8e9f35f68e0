"""From numbers per token to verbatim passages: whole sentences or lines of a page, of a length that can be read."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ondevice.documents.tokens import DocumentTokens
from ondevice.events import Source
from ondevice.search.sentences import sentences

MAX_CHARS = 400  # of a passage
_CANDIDATES = 256  # tokens with the largest scores, whose sentences take part

# Dots from an entry of a table of contents to its page: heads attend to them, and they say nothing.
_LEADERS = re.compile(r"(?:[.·…_][ \u00a0]?){5,}")

Weights = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Passage:
    """Characters [start, stop) of the page at `page_index`."""

    page_index: int
    start: int
    stop: int


def strongest_passages(tokens: DocumentTokens, scores: Weights, attention: Weights, number: int) -> tuple[Source, ...]:
    """The passages with the largest sums of scores, the largest first; neighbours are one passage.

    Args:
        tokens: of a document whose text is kept.
        scores: (n,), what passages are chosen by and have their `share` of, of the first n tokens: no passage reaches
            beyond those.
        attention: (n,), of which they have their `attention_share`.
        number: passages, at most.
    """
    scores = _without_leaders(tokens, scores)
    chosen: list[Passage] = []
    for passage in _candidates(tokens, scores):
        at = next((i for i, other in enumerate(chosen) if _touch(tokens, passage, other)), None)
        if at is not None:
            other = chosen[at]
            start, stop = min(passage.start, other.start), max(passage.stop, other.stop)
            chosen[at] = Passage(passage.page_index, start, stop)
        elif len(chosen) < number:
            chosen.append(passage)
        else:
            break
    cut = sorted((_cut(tokens, scores, passage) for passage in chosen), key=lambda p: -_sum(tokens, scores, p))
    return tuple(_source(tokens, passage, scores, attention) for passage in cut)


def _without_leaders(tokens: DocumentTokens, scores: Weights) -> Weights:
    """The scores with 0 for the dots of tables of contents, on every page with one of the largest scores."""
    scores = scores.copy()
    for index in {tokens.page_index(int(token)) for token in _strongest(scores)}:
        for dots in _LEADERS.finditer(tokens.texts[index]):
            first, last = _token_range(tokens, Passage(index, *dots.span()))
            scores[first:last] = 0
    return scores


def _strongest(scores: Weights) -> npt.NDArray[np.intp]:
    """Tokens with the largest scores above 0, the largest first."""
    top = np.argsort(-scores, kind="stable")[:_CANDIDATES]
    return top[scores[top] > 0]


def _candidates(tokens: DocumentTokens, scores: Weights) -> list[Passage]:
    """Sentences of the tokens with the largest scores, those with the largest sums first."""
    found: dict[Passage, None] = {}
    by_page: dict[int, list[tuple[int, int]]] = {}
    for token in _strongest(scores):
        index = tokens.page_index(int(token))
        if index not in by_page:
            by_page[index] = list(sentences(tokens.texts[index][: _end_of_read(tokens, index, scores.size)]))
        first = tokens.page_tokens(index)[0]
        # A token may begin with the space before its word; the middle of it lies in its sentence.
        start, stop = tokens.page_spans(index)[int(token) - first].tolist()
        at = (start + stop) // 2
        found |= {Passage(index, a, b): None for a, b in by_page[index] if a <= at < b}
    return sorted(found, key=lambda passage: -_sum(tokens, scores, passage))


def _end_of_read(tokens: DocumentTokens, index: int, num_read: int) -> int | None:
    """Character of a page up to which its first tokens reach; None: they are all among the first `num_read`."""
    first, last = tokens.page_tokens(index)
    return int(tokens.page_spans(index)[num_read - first - 1][1]) if num_read < last else None


def _touch(tokens: DocumentTokens, one: Passage, other: Passage) -> bool:
    """True if two passages follow each other, and are no longer together than one may be."""
    first, second = sorted((one, other), key=lambda passage: passage.start)
    return (
        one.page_index == other.page_index
        and not tokens.texts[one.page_index][first.stop : second.start].strip()
        and second.stop - first.start <= MAX_CHARS
    )


def _cut(tokens: DocumentTokens, scores: Weights, passage: Passage) -> Passage:
    """Without blank space around; of what is too long, the words around its strongest token."""
    text, start, stop = tokens.texts[passage.page_index], passage.start, passage.stop
    if stop - start > MAX_CHARS:
        first, last = _token_range(tokens, passage)
        strongest = first + int(np.argmax(scores[first:last]))
        centre = int(tokens.page_spans(passage.page_index)[strongest - tokens.page_tokens(passage.page_index)[0]][0])
        low = max(min(centre - MAX_CHARS // 2, stop - MAX_CHARS), start)
        high = min(low + MAX_CHARS, stop)
        space_behind, space_before = text.find(" ", low, centre), text.rfind(" ", centre, high)
        start = start if low == start else space_behind + 1 if space_behind >= 0 else low
        stop = stop if high == stop else space_before if space_before > centre else high
    body = text[start:stop]
    start += len(body) - len(body.lstrip())
    return Passage(passage.page_index, start, start + len(body.strip()))


def _source(tokens: DocumentTokens, passage: Passage, scores: Weights, attention: Weights) -> Source:
    first, last = _token_range(tokens, passage)
    share, attended = scores[first:last].sum() / scores.sum(), attention[first:last].sum() / attention.sum()
    return source(tokens, passage, float(share), float(attended))


def source(tokens: DocumentTokens, passage: Passage, share: float, attention_share: float = 0.0) -> Source:
    """The passage as the source of an answer."""
    first, last = _token_range(tokens, passage)
    return Source(
        text=tokens.texts[passage.page_index][passage.start : passage.stop],
        page=tokens.page_numbers[passage.page_index],
        start_token=first,
        stop_token=last,
        start_char=passage.start,
        stop_char=passage.stop,
        share=share,
        attention_share=attention_share,
    )


def _sum(tokens: DocumentTokens, scores: Weights, passage: Passage) -> float:
    first, last = _token_range(tokens, passage)
    return float(scores[first:last].sum())


def _token_range(tokens: DocumentTokens, passage: Passage) -> tuple[int, int]:
    """Document tokens [first, last) whose middle lies in a passage."""
    spans = tokens.page_spans(passage.page_index)
    middles = (spans[:, 0] + spans[:, 1]) // 2
    offset = tokens.page_tokens(passage.page_index)[0]
    first, last = np.searchsorted(middles, (passage.start, passage.stop))
    return offset + int(first), offset + int(last)
