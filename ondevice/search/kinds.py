"""Kinds of questions: about the whole document, answered from all of it; about pages that it names; and others."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

NUMBERED = ("page", "slide", "sheet")  # units whose numbers are the document's own
_PAGE = rf"(?:{'|'.join(NUMBERED)}|seite|folie|página|pagina)s?"
_TO = r"(?:-|\u2013|to|through|and|bis|und|à|et)"
_NUMBERS = re.compile(rf"\b{_PAGE}\s*(\d{{1,6}})(?:\s*{_TO}\s*(\d{{1,6}}))?\b", re.IGNORECASE)
_END = re.compile(rf"\b(?:(first|erste[nr]?)|last|final|letzte[nr]?)\s+{_PAGE}\b", re.IGNORECASE)
_TEXT = r"(?:document|text|paper|book|article|report|contract|story|novel|file|letter|manual|page|chapter|section|it)"
_WHOLE = re.compile(
    r"\bsummar|\boverview\b|\boutline\b|\bgist\b|\btl;? ?dr\b|\bin (?:short|brief|a nutshell)\b|\btakeaways?\b"
    r"|\b(?:main|key|central|overall) (?:idea|point|topic|theme|argument|finding|message|purpose|conclusion)s?\b"
    rf"|\bwhat (?:is|are|was|does) (?:this|the|that)? ?{_TEXT}s? (?:about|all about|talk about|deal with|say|cover)\b"
    r"|\b(?:entire|whole) (?:document|text|paper|book|article|report|contract|story)\b"
    r"|\b(?:list|name|enumerate|give me) (?:all|every|each)\b|\bwhat (?:has |have |was |were )?changed\b"
    r"|\bzusammenfass|\bworum geht|\bfasse?\b.*\bzusammen\b"
    r"|\brésum|\bde quoi parle|\bresum(?:e|en|ir|a)\b|\bde qué trata",
    re.IGNORECASE,
)


def asks_for_whole(question: str) -> bool:
    """True if a question is about all of a text: a summary, its topic, its main points."""
    return _WHOLE.search(question) is not None


def pages_named(question: str, unit: str, numbers: Sequence[int]) -> range:
    """Indices of the pages that a question names by number, or as the first or last; empty where none of them is there.

    Args:
        unit: the document's word for its pages; if it is none of `NUMBERED`, nobody knows their numbers.
        numbers: of its pages, rising.
    """
    if unit not in NUMBERED or not numbers:
        return range(0)
    if found := _NUMBERS.search(question):
        first, last = int(found[1]), int(found[2] or found[1])
        return range(bisect_left(numbers, first), bisect_right(numbers, last))
    end = _END.search(question)
    return range(0) if end is None else range(1) if end[1] else range(len(numbers) - 1, len(numbers))
