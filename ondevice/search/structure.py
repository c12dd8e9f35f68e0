"""Answers that the outline of a document gives by itself, so that no model can get them wrong."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence

from ondevice.search.outline import TEXTS, Heading, heading_at, matches, phrase

_KIND = r"(heading|section|chapter|part|book)"
_KINDS = {
    "headings": "heading", "outline": "heading", "contents": "heading", "überschriften": "heading",
    "inhaltsverzeichnis": "heading", "gliederung": "heading", "sections": "section", "abschnitte": "section",
    "chapters": "chapter", "kapitel": "chapter", "parts": "part", "books": "book",
}  # fmt: skip
# A question of these words, and one of the above, asks for a list; with another word it asks for something else.
_PLAIN = re.compile(
    "please|can|could|you|i|list|name|give|show|tell|me|us|enumerate|what|which|are|is|how|many|all|every|of|the|its|main"
    "|top|level|table|in|this|that|document|paper|book|text|report|article|file|it|there|does|do|have|has|here|and|their"
    "|titles|section|chapter|nenne|zeige|welche|wie|viele|alle|die|das|der|des|dem"
    "|dokuments?|buch(?:e?s)?|textes|berichts?|gibt|es|hat|im|sind|gib|mir|bitte|diese[ms]?|liste|auf"
)
_OFFERS, _LISTS = {"do", "can", "could"}, {"list", "name", "show", "give", "tell", "how", "what", "which"}
_HOW_MANY = re.compile(
    r"(?i)how many (chapters|sections|headings) (?:does|do|has|have|are in|are there in) (?:the|this|that|it|its)"
    rf"(?: (?:{TEXTS}))?(?: (?:have|contain))?\W*\Z"
)
_ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth", "last")
_NTH = re.compile(rf"(?i)\b({'|'.join(_ORDINALS)}) {_KIND}\b.{{0,12}}\b(?:called|title|titled|headed|named?)\b")
_NTH_TITLE = re.compile(rf"(?i)\b(?:title|heading|name) of the ({'|'.join(_ORDINALS)}) {_KIND}\b(?!['\u2019])")
_WHERE = re.compile(
    r"(?i)\b(?:which|what) (?:section|chapter|heading)s? (?:mention|contain)s? "
    r"(?:the (?:word|name|phrase|term) )?(.+?)\s*[?.!]*\Z"
)
_PAGES = re.compile(
    r"(?i)\b(?:(?:which|what) (?:pages?|slides?) mentions?|welche (?:seiten?|folien?) (?:erwähn|nenn)(?:en|t))"
    r"(?: (?:the|an?|de[nr]|die|das))?(?: (?:word|name|phrase|term|wort|namen))? (.+?)\s*[?.!]*\Z"
)
_MOST = 100  # headings of one answer


def from_outline(
    question: str, texts: Sequence[str], headings: Callable[[], Sequence[Heading]], page: Callable[[int], str]
) -> str:
    """The answer to a question for the headings, their number or one of them, or for the places that have a word.

    Args:
        texts: of the document, page by page.
        headings: its outline, which is only made for such a question.
        page: index of a page -> the words for it, such as "page 3".

    Returns:
        "" where the question is another one, or the document has no headings.
    """
    if pages := _PAGES.search(question):
        words = pages[1].strip("\"\u201c\u201d\u201e'")
        places = [*dict.fromkeys(page(index) for index, *_ in matches(phrase(words), texts))]
        more = f" and {len(places) - _MOST} more" if len(places) > _MOST else ""
        return f"\u201c{words}\u201d stands here: {', '.join(places[:_MOST])}{more}." if places else ""
    where, nth, kind = _WHERE.search(question), _NTH.search(question) or _NTH_TITLE.search(question), _listed(question)
    if not (where or nth or kind) or not (all_of_them := headings()):
        return ""
    if where:
        return _with_words(where[1].strip("\"\u201c\u201d'"), texts, all_of_them, page)
    found = _of_kind(all_of_them, nth[2].lower() if nth else kind)
    if nth:
        at = _ORDINALS.index(nth[1].lower())
        one = found[-1] if nth[1].lower() == "last" and found else found[at] if at < len(found) else None
        return f"The {nth[1]} {nth[2]} is \u201c{one.title}\u201d ({page(one.page_index)})." if one else ""
    if not found:
        return ""
    above, lines = list[int](), list[str]()  # levels of the headings that the next one may be under
    for one in found[:_MOST]:
        above = [level for level in above if level < one.level]
        lines.append(f"{'  ' * len(above)}- {one.title} ({page(one.page_index)})")
        above.append(one.level)
    lines += [f"- and {len(found) - _MOST} more"] if len(found) > _MOST else []
    return "\n".join([f"The document has {len(found)} {kind}{'s' * (len(found) != 1)}:", "", *lines])


def _listed(question: str) -> str:
    """The kind of headings that a question asks to list or to count; "" for another question."""
    if counted := _HOW_MANY.match(question):
        return _KINDS[counted[1].lower()]
    found = re.findall(r"\w+", question.casefold())
    kinds = [word for word in found if word in _KINDS]
    is_about_us = not _OFFERS.isdisjoint(found) and _LISTS.isdisjoint(found)  # "Can I do it in parts?"
    is_plain = len(kinds) == 1 and all(map(_PLAIN.fullmatch, set(found) - {*kinds}))
    return _KINDS[kinds[0]] if is_plain and not is_about_us else ""


def _of_kind(headings: Sequence[Heading], kind: str) -> Sequence[Heading]:
    """Headings that call themselves so; else all of them, or those of the first level that has several."""
    named = [one for one in headings if re.match(rf"{kind}\b", one.title, re.IGNORECASE)]
    if named or kind in ("part", "book"):
        return named
    if kind == "heading":
        return headings
    top = min((level for level, count in Counter(one.level for one in headings).items() if count > 1), default=1)
    return [one for one in headings if one.level <= top] or headings


def _with_words(words: str, texts: Sequence[str], headings: Sequence[Heading], page: Callable[[int], str]) -> str:
    """The sections in which some words stand, in the order of the document."""
    found: dict[str, str] = {}
    for index, _, start in matches(phrase(words), texts):
        heading = heading_at(headings, start)
        found.setdefault(heading.title if heading else "the beginning", page(index))
    if not found:
        return ""
    places = [f"\u201c{title}\u201d ({where})" for title, where in [*found.items()][:_MOST]]
    more = f" and {len(found) - _MOST} more" if len(found) > _MOST else ""
    return f"\u201c{words}\u201d stands in {', '.join(places)}{more}."
