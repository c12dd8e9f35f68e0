"""Claims of an answer that the document lacks: its numbers, names and quotations, looked up as strings.

No model is asked, so it holds for any: what stands nowhere in the text was not read there. It may still be right (a
sum, another spelling), and what does stand in the text may still answer another question.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

MOST = 8  # that are named
_QUOTED = re.compile(r"[“\"«„]([^“”\"«»„\n]{3,1000})[”\"»“]")
_NUMBER = re.compile(r"(?<![\w.,])\d(?:[\d.,:/\u00a0\u202f-]*\d)?(?![\w])")
_LISTED = re.compile(r"(?m)^\s*\d{1,3}[.)]\s")  # the numbers of a list are nobody's
_NAME = re.compile(r"\b[A-ZÀ-ÖØ-Þ][\w\u2019'-]+(?:[ ][A-ZÀ-ÖØ-Þ][\w\u2019'-]+)*")
_SENTENCE_ENDS = (".", "!", "?", ":", "\n", "*", "-", "•", "“", '"', "(")
_GROUPED = "(?:[,\u00a0\u202f\u2019']|[.](?=\\d{3}(?!\\d)))?"  # between the digits of a thousand
_GERMAN = {"der", "das", "und", "ist", "nicht", "eine", "einen", "einem", "für", "von", "wird", "sind", "wie", "wer"}


def unfounded(answer: str, question: str, texts: Sequence[str]) -> tuple[str, ...]:
    """Numbers, names and quotations of an answer that stand nowhere in the text, in the answer's order.

    A name is one or more words with capital letters, not one word that begins a sentence; it is missing where one of
    its words is. What the question itself says is not looked up. Letters are compared without regard to case, and white
    space as one blank.

    Args:
        texts: the document's, page by page.

    Returns:
        at most `MOST` of them, each once.
    """
    looked_up = dict.fromkeys(_claims(answer, has_small_nouns=not _is_german(f"{question} {answer}")))
    if not looked_up:
        return ()
    source = "\n".join((*texts, question)).casefold()
    missing = [text for text, pattern in looked_up if not re.search(pattern, source)]
    return tuple(dict.fromkeys(missing))[:MOST]


def _is_german(text: str) -> bool:
    """True if its nouns begin with capital letters, so that these make no names."""
    return len(_GERMAN & {*text.casefold().split()}) > 1


def _claims(answer: str, *, has_small_nouns: bool) -> Iterator[tuple[str, str]]:
    """The claims that are looked up, with the pattern that finds it in a folded text; in the answer's order."""
    plain = _LISTED.sub(lambda match: " " * len(match[0]), answer)
    found: list[tuple[int, str, str]] = []
    quoted = list(_QUOTED.finditer(plain))
    for match in quoted:
        if " " in match[1].strip():
            words = match[1].strip(" .,;:!?…").casefold().split()
            found.append((match.start(), match[0], r"\s+".join(map(re.escape, words))))
    for match in _NUMBER.finditer(plain):
        found.append((match.start(), match[0], _number_pattern(match[0])))
    for match in _NAME.finditer(plain):
        begins = is_first_word(plain, match.start())
        words = [word for word in match[0].split(" ")[begins:] if len(word) > 2]
        if len(words) == 1 and not has_small_nouns:
            continue
        for word in words:
            found.append((match.start(), " ".join(match[0].split(" ")[begins:]), rf"\b{re.escape(_stem(word))}"))
    is_inside = [(match.start(), match.end()) for match in quoted if " " in match[1].strip()]
    for at, text, pattern in sorted(found, key=lambda claim: claim[0]):
        if not any(start < at < stop for start, stop in is_inside):  # the quotation is looked up as a whole
            yield text, pattern


def is_first_word(text: str, at: int) -> bool:
    """True if a sentence, an item or a quotation begins there, so that a capital letter says nothing."""
    before = text[:at].rstrip(" ")
    return not before or before.endswith(_SENTENCE_ENDS)


def _stem(word: str) -> str:
    """Without the ending of a possessive."""
    return re.sub(r"[\u2019']s?$", "", word.casefold())


def _number_pattern(number: str) -> str:
    """Digits with or without marks between thousands; a decimal point may be a comma, and a colon a point."""
    digits = re.sub("[,\u00a0\u202f]", "", number)
    pattern = "".join(
        {".": "[.,]", ":": "[:.]"}.get(one, re.escape(one))
        + (_GROUPED if one.isdigit() and digits[i + 1 : i + 2].isdigit() else "")
        for i, one in enumerate(digits)
    )
    return rf"(?<!\d){pattern}(?!\d)"
