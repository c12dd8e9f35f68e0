"""Sentences of a text, by their marks: not at those of an abbreviation, an initial or an ordinal."""

from __future__ import annotations

import re
from collections.abc import Iterator

# A sentence ends after its mark, at an empty line, and where a list, a table or a heading goes on in a new line.
_BREAK = re.compile(r"[.!?…]['\"”’»)\]]*\s+|[。！？]\s*|\n\s*\n\s*|\n(?=\s*(?:[-*•#|>]|\d+[.)]\s))")  # noqa: RUF001
_SHORT = re.compile(  # before a full stop that ends no sentence
    r"\b(?:Mr|Mrs|Ms|Dr|Prof|St|Messrs|vs|approx|ca|cf|e\.g|i\.e|bzw|vgl|bspw|inkl|z\. ?B|d\. ?h|u\. ?a"
    r"|(?<!vitamin )[A-Z])\.\s+\Z"
)
_BEFORE_NUMBER = re.compile(r"(?i)\b(?:nos?|nr|arts?|abs|sec|figs?|eq|vol|pp?|s)\.\s+\Z")
_ORDINAL = re.compile(r"\b\d{1,2}\. +\Z")
_MONTH = re.compile(r"(?:Jan|Feb|Mär|Apr|Mai|Jun|Jul|Aug|Sep|Okt|Nov|Dez)")


def sentences(text: str) -> Iterator[tuple[int, int]]:
    """[start, stop) of every sentence with a letter or digit in it; what is shorter goes with the next."""
    start = 0
    for match in _BREAK.finditer(text):
        if any(letter.isalnum() for letter in text[start : match.end()]) and not _is_within(text, start, match):
            yield start, match.end()
            start = match.end()
    if start < len(text):
        yield start, len(text)


def _is_within(text: str, start: int, match: re.Match[str]) -> bool:
    """True for a full stop after which the sentence goes on."""
    if match[0][0] != "." or "\n\n" in match[0]:
        return False
    before, after = text[start : match.end()], text[match.end() : match.end() + 3]
    is_date = _ORDINAL.search(before) is not None and _MONTH.match(after) is not None
    is_short = _SHORT.search(before) is not None or (_BEFORE_NUMBER.search(before) and re.match(r"[\dIVX]", after))
    return after[:1].islower() or is_date or bool(is_short)
