"""Kinds of questions: about the whole document, answered from all of it, and others."""

from __future__ import annotations

import re

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
