"""Parts of a document as tools and programs ask for them: pages by number, headings, places of words; no model."""

from __future__ import annotations

import re
from typing import Any

from ondevice.documents.tokens import DocumentTokens
from ondevice.errors import DocumentError
from ondevice.search.outline import heading_at, matches

MOST_TOKENS = 4000  # of one result
_HITS = 40  # of one result
_HEADINGS = 100  # of one result
_AROUND = 120  # characters on each side of a hit
_MOST_WORDS = 1000  # characters of what is looked for


def page_texts(tokens: DocumentTokens, first: int, last: int, cursor: int = 0) -> dict[str, Any]:
    """The text of the pages with numbers from `first` to `last`, at most `MOST_TOKENS` tokens of it.

    Args:
        tokens: of the document, whose text is kept.
        cursor: `next_cursor` of the result before; 0 begins at the first page.

    Raises:
        DocumentError: there is no such page.
    """
    indices = [index for index, number in enumerate(tokens.page_numbers) if first <= number <= last]
    if not indices:
        there = f"from {tokens.page_numbers[0]} to {tokens.page_numbers[-1]}"
        raise DocumentError("There is no such page", where=f"pages {first} to {last}", fix=f"Its pages: {there}.")
    start = max(tokens.page_tokens(indices[0])[0], cursor)
    stop = min(tokens.page_tokens(indices[-1])[1], start + MOST_TOKENS)
    pages = []
    for index in indices:
        begin, end = tokens.page_tokens(index)
        low, high = max(begin, start) - begin, min(end, stop) - begin
        if low < high:
            spans = tokens.page_spans(index)
            text = tokens.texts[index][spans[low, 0] : spans[high - 1, 1]]
            pages.append({tokens.document.unit: tokens.page_numbers[index], "text": text})
    return {"pages": pages} | ({"next_cursor": stop} if stop < tokens.page_tokens(indices[-1])[1] else {})


def headings(tokens: DocumentTokens, cursor: int = 0) -> dict[str, Any]:
    """The headings of a document with their levels and pages, at most some of them; raises nothing.

    Args:
        tokens: of the document, whose text is kept.
        cursor: `next_cursor` of the result before.
    """
    first, unit = max(cursor, 0), tokens.document.unit
    shown = [
        {"title": one.title[:_AROUND], "level": one.level, unit: tokens.page_numbers[one.page_index]}
        for one in tokens.headings[first : first + _HEADINGS]
    ]
    rest = {"next_cursor": first + _HEADINGS} if first + _HEADINGS < len(tokens.headings) else {}
    return {"count": len(tokens.headings), "headings": shown} | rest


def found(tokens: DocumentTokens, words: str, cursor: int = 0) -> dict[str, Any]:
    """The places where words stand next to each other, in any case, with what is around them; at most some of them.

    Each has its page, and the heading that it is under.

    Args:
        tokens: of the document, whose text is kept.
        words: a word or a phrase; any white space may stand between two of them.
        cursor: `next_cursor` of the result before.

    Raises:
        DocumentError: there are no words, or too many.
    """
    if not words.split() or len(words) > _MOST_WORDS:
        what = f"There is {'too much' if words.split() else 'nothing'} to find"
        raise DocumentError(what, fix=f"Give some words, at most {_MOST_WORDS:,} characters.")
    pattern = re.compile(r"\s+".join(map(re.escape, words.split())), re.IGNORECASE)
    first, count, places = max(cursor, 0), 0, list[dict[str, Any]]()
    for index, match, start in matches(pattern, tokens.texts):  # one at a time: a letter is found millions of times
        if first <= count < first + _HITS:
            around = " ".join(match.string[max(match.start() - _AROUND, 0) : match.end() + _AROUND].split())
            place = {tokens.document.unit: tokens.page_numbers[index], "text": around}
            section = heading_at(tokens.headings, start)
            places.append(place | ({"section": section.title[:_AROUND]} if section else {}))
        count += 1
    rest = {"next_cursor": first + _HITS} if first + _HITS < count else {}
    return {"count": count, "found": places} | rest
