"""Kinds of questions: about the whole document, answered from all of it; about pages that it names; and others."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

_PAGE = r"page|seite|página|pagina"
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
        unit: what the document calls its pages.
        numbers: of its pages, rising.
    """
    word = rf"(?:{re.escape(unit)}|{_PAGE})s?"
    found = re.search(
        rf"\b{word}\s*(\d{{1,6}})(?:\s*(?:-|\u2013|to|through|and|bis|und|à|et)\s*(\d{{1,6}}))?\b", question, re.I
    )
    if found is not None:
        first, last = int(found[1]), int(found[2] or found[1])
        return range(bisect_left(numbers, first), bisect_right(numbers, last))
    end = re.search(rf"\b(?:(first|erste[nr]?)|last|final|letzte[nr]?)\s+{word}\b", question, re.I)
    if end is None or not numbers:
        return range(0)
    at = 0 if end[1] else len(numbers) - 1
    return range(at, at + 1)
