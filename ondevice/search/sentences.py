"""Sentences of a text, by their marks: not at those of an abbreviation, an initial or an ordinal."""

from __future__ import annotations

import re
from collections.abc import Iterator

# A sentence ends after its mark, at an empty line, and where a list, a table or a heading goes on in a new line.
_BREAK = re.compile(r"[.!?…]['\"”’»)\]]*\s+|[。！？]\s*|\n\s*\n\s*|\n(?=\s*(?:[-*•#|>]|\d+[.)]\s))")  # noqa: RUF001
_SHORT = re.compile(  # before a full stop that ends no sentence
    r"\b(?:Mr|Mrs|Ms|Dr|Prof|St|Messrs|vs|approx|ca|cf|e\.g|i\.e|bzw|vgl|bspw|inkl|zzgl|ggf|evtl|sog|Mio|Mrd|Hr|Fa"
    r"|z\. ?B|d\. ?h|u\. ?a|(?<!vitamin )[A-Z])\.\s+\Z"
)
_BEFORE_NUMBER = re.compile(
    r"(?i)\b(?:nos?|nr|arts?|abs|sec|figs?|eqs?|tab|abb|kap|ziff|vol|pp?|s|al"
    r"|jan|feb|mar|apr|aug|sept?|oct|okt|nov|dec|dez)\.\s+\Z"
)
_NUMBER = re.compile(r"[\d(]|(?!I [a-z])[IVX]+\b")
_ORDINAL = re.compile(r"\b\d{1,2}\. +\Z")
_ORDINAL_OF = re.compile(r"(?i)\b(?:de[rmns]|die|das|im) \d{1,2}\. +\Z")  # German; a noun comes after it
_MONTH = re.compile(r"(?:Jan|Feb|Mär|Apr|Mai|Jun|Jul|Aug|Sep|Okt|Nov|Dez)")
_NEAR = 16  # characters that tell, on either side of a mark


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
    before, after = text[max(start, match.end() - _NEAR) : match.end()], text[match.end() : match.end() + _NEAR]
    is_ordinal = _ORDINAL.search(before) and (_MONTH.match(after) or _ORDINAL_OF.search(before))
    is_short = _SHORT.search(before) or (_BEFORE_NUMBER.search(before) and _NUMBER.match(after))
    return after[:1].islower() or bool(is_ordinal or is_short)
