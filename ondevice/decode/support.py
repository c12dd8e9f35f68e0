"""A check of an answer against its passages, sentence by sentence: which one supports it, and which says otherwise.

Words are compared, those that are rare in the document most; no model is asked. It would rather miss a wrong sentence
than doubt a right one: a passage says otherwise only where the words around another number, another name or a "not"
are the same, and where no place of the document says what the answer does.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from itertools import pairwise

from ondevice.decode.unfounded import CANONICAL, SCALES, is_first_word, spellings
from ondevice.events import Citation, Source
from ondevice.search.sentences import sentences
from ondevice.search.tables import Row, words_of

_SUPPORTS = 0.6  # share of a sentence's weight that a passage has
_FRAME, _ELSEWHERE = 0.7, 0.5  # of the words around what differs: shared with what says otherwise; in another place
_WEIGHS, _RUN, _NEAR = 0.3, 8, 200  # of a word that counts; words that were copied; characters around a place
_WORD = re.compile(r"[$€£]|\d+(?:[.,:/]\d+)*|[^\W\d_]+(?:['’][^\W\d_]+)?")  # noqa: RUF001
_NOT = re.compile(
    r"not?|never|nor|neither|without|cannot|\w+n['’]t|nicht|kein\w*|nie|ohne|ne|pas|jamais|sans|nunca",  # noqa: RUF001
    re.IGNORECASE,
)
_WITHOUT = re.compile(r"without|ohne|sans", re.IGNORECASE)
_NAMES_TERMS = re.compile(r"\b(?:with|only|if|mit|nur|avec)\b", re.IGNORECASE)
_SMALL = {str(number) for number in range(2, 13)}  # written as words, too
_UNITS = {"second", "minute", "hour", "day", "week", "month", "year", "mm", "cm", "m", "km", "mg", "g", "kg", "percent"}
_OPPOSITES = tuple(
    (frozenset(one.split()), frozenset(other.split()))
    for one, other in (
        (
            "rose rise risen increased increase grew grown gained gain higher",
            "fell fall fallen decreased decrease declined decline dropped drop lower",
        ),
        ("profit", "loss losse"),
        (
            "stieg stiegen steigt gestiegen erhöht erhöhte wuch gewachsen zugenommen",
            "sank sanken sinkt gesunken fiel fielen gefallen verringert verringerte abgenommen",
        ),
    )
)
_USUAL = re.compile(  # in any text; in a short one they are as rare as others
    r"\D{1,2}|the|and|for|are|was|were|has|had|have|did|does?|its|that|this|these|those|with|from|into|which|when|what"
    r"|where|who|whom|whose|why|how|many|much|will|would|can|could|there|their|they|them|she|her|his|him|than|then|also"
    r"|only|about|been|being|other|more|most|some|such|very|any|all|but|not|you|your|say"
    r"|der|die|das|de[mns]|und|ist|sind|war|hat|wie|was|wer|wann|ein|eine[mnrs]?|für|mit|von|auf|nach|zu[mr]|nicht"
)
_REPLY = re.compile(r"\s*(?:yes|no|ja|nein|oui|non|sí)\s*[,.:;!]\s*", re.IGNORECASE)
_Words = list[tuple[str, bool]]  # as they are compared; True: a number or a name, which has to be the same


def check(
    answer: str, question: str, passages: Sequence[Source], texts: Sequence[str], rows: Sequence[Row] = ()
) -> tuple[Citation, ...]:
    """The passage of each sentence of an answer that supports it, or else says otherwise; none for many a sentence.

    Args:
        texts: the document's, page by page.
        rows: of tables, that the model was told.
    """
    if not passages:
        return ()
    weights, found = _Weights(texts), []
    asked, known = _terms(question), {*words_of(question)}
    told = [(row.told(known), [row.cells[at] for at in row.columns(known)], row.cells) for row in rows]
    parts = [(i, one.text[a:b].strip()) for i, one in enumerate(passages) for a, b in sentences(one.text)]
    for start, stop in sentences(answer):
        said = answer[start:stop].rstrip()
        figures = {term for term in _terms(said) if term[-1].isdigit()} - known
        if (row := _by_row(figures, told, passages)) is not None:
            found.append(Citation(start + len(said), *row))
            continue
        shares = [_support(said, asked, one.text, weights) for one in passages]
        best = shares.index(max(shares))
        if shares[best] >= _SUPPORTS:
            found.append(Citation(start + len(said), best, passages[best].text))
            continue
        others = ((i, part) for i, part in parts if _says_otherwise(said, part, passages[i].text, asked, weights))
        if (other := next(others, None)) is not None:
            found.append(Citation(start + len(said), *other, agrees=False))
    return tuple(found)


class _Weights:
    """Weights of words by how rare they are in a document: 1 for one that it has at most once, 0 for a usual one."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._source, self._known = "\n".join(texts).casefold(), dict[str, float]()

    def __getitem__(self, term: str) -> float:
        if term not in self._known:
            same = spellings(term)
            number = max(len(re.findall(same, self._source)) if same else self._source.count(term), 1)
            rare = 1 - 2 * math.log(number) / math.log(max(len(self._source) / 6, 10))
            self._known[term] = 0.0 if _USUAL.fullmatch(term) else max(rare, 0.0)
        return self._known[term]

    def share(self, wanted: set[str], there: set[str]) -> float:
        """The part of the weight of `wanted` that is there."""
        whole, shared = (sum(map(self.__getitem__, terms)) for terms in (wanted, wanted & there))
        return shared / whole if whole else 0.0

    def are_together(self, odd: set[str], frame: set[str]) -> bool:
        """True if the document has one of the words near enough of the others."""
        places = (match for term in odd for match in re.finditer(_pattern(term), self._source))
        for match in places:
            near = self._source[max(match.start() - _NEAR, 0) : match.end() + _NEAR]
            if (
                self.share(frame, {term for term in frame if term in near or re.search(_pattern(term), near)})
                >= _ELSEWHERE
            ):
                return True
        return False


def _support(said: str, asked: set[str], passage: str, weights: _Weights) -> float:
    """The share of a sentence that a passage has; 0 where it lacks a number or a name of it, or says otherwise."""
    words, there = _words(_REPLY.sub("", said, count=1)), _terms(passage)
    wanted = {term for term, _ in words if weights[term]}
    is_told = bool(wanted - asked) and (len(wanted & there) > 1 or bool(asked & there))
    if not is_told or {term for term, is_bound in words if is_bound} - asked - there:
        return 0.0
    parts = [passage[a:b] for a, b in sentences(passage)]
    is_other = any(
        _negates(said, part)
        or _own_tail(words, _words(part))
        or _other_units(words, _words(part))
        or _is_opposite(wanted, _terms(part), weights)
        for part in parts
    )
    if not _has_terms(said) and not _NAMES_TERMS.search(said):  # a yes that leaves out on which terms
        is_other = is_other or any(_has_terms(part) and weights.share(wanted, _terms(part)) >= _FRAME for part in parts)
    is_other = is_other or bool(_denied(said)[1]) > any(_denied(part)[1] for part in parts)
    return 0.0 if is_other else weights.share(wanted, there)


def _says_otherwise(said: str, part: str, passage: str, asked: set[str], weights: _Weights) -> bool:
    """True if a sentence of a passage says another number, another name, or the contrary, with the same words."""
    mine, theirs = _words(said), _words(part)
    own, there = ({term for term, _ in words if weights[term]} for words in (mine, theirs))
    beside = _terms(passage)
    if _negates(said, part):
        return weights.share(own, there) >= _FRAME and weights.share(there, own) >= _ELSEWHERE
    if units := _other_units(mine, theirs):
        return weights.share(own - units, there) >= _FRAME and not weights.are_together(units, own - units)
    odd = {term for term, is_bound in mine if is_bound} - asked - _without_sign(beside)
    counted = {thing for things in _counted(theirs).values() for thing in things}
    odd -= {number for number, things in _counted(mine).items() if number in _SMALL and not things & counted}
    frame = own - odd | {term for term in asked if weights[term]}
    if odd and weights.share(frame, beside) >= _FRAME and weights.share(frame, there) >= _ELSEWHERE:
        others = {term for term, is_bound in theirs if is_bound} - own - asked
        kinds = [{term[-1].isdigit() for term in terms} for terms in (odd, others)]
        if _without_sign(odd) & _without_sign(others):
            return False
        return kinds[0] <= kinds[1] and not weights.are_together(odd, frame)
    odd = {term for term in _own_tail(mine, theirs) if weights[term] >= _WEIGHS}
    return bool(odd) and not odd & beside and not weights.are_together(odd, own - odd)


def _by_row(
    figures: set[str], told: Sequence[tuple[str, Sequence[str], Sequence[str]]], passages: Sequence[Source]
) -> tuple[int, str, bool] | None:
    """Passage and text of the row with a figure of a sentence; False where it is from another column than asked for.

    Args:
        told: text of each row, its cells that are in it, and all of them.
    """
    agrees = any(figures & _without_sign(_terms(*shown)) for _, shown, _ in told)
    for text, shown, cells in told:
        there = _without_sign(_terms(*shown)) if agrees else _terms(*cells) - _terms(*shown)
        held = [sum(cell in one.text for cell in shown) for one in passages]
        if figures & there and any(held):
            return held.index(max(held)), text, agrees
    return None


def _without_sign(terms: set[str]) -> set[str]:
    """Terms, and negative numbers among them as a loss or a payment may be told."""
    return terms | {term.lstrip("-") for term in terms}


def _counted(words: _Words) -> dict[str, set[str]]:
    """The words right after each number."""
    found: dict[str, set[str]] = {}
    for (number, _), (thing, _) in pairwise(words):
        if number[-1].isdigit():
            found.setdefault(number, set()).add(thing)
    return found


def _other_units(mine: _Words, theirs: _Words) -> set[str]:
    """The units of the numbers of a sentence that another one has of other units alone, as minutes for hours."""
    own, others = _counted(mine), _counted(theirs)
    pairs = [(own[number], others[number]) for number in own.keys() & others.keys()]
    return {unit for mine, theirs in pairs if mine | theirs <= _UNITS and not mine & theirs for unit in mine}


def _is_opposite(wanted: set[str], there: set[str], weights: _Weights) -> bool:
    """True if a sentence says "rose" or "profit" where another one with the same words says "fell" or "loss"."""
    pairs = (pair for one, other in _OPPOSITES for pair in ((one, other), (other, one)))
    return any(
        mine & wanted and theirs & there and not (mine & there or theirs & wanted)
        and weights.share(wanted - mine, there) >= _ELSEWHERE
        for mine, theirs in pairs
    )  # fmt: skip


def _own_tail(mine: _Words, theirs: _Words) -> list[str]:
    """The words in which a sentence ends that began by copying another one, which ends otherwise."""
    own, other = [term for term, _ in mine], [term for term, _ in theirs]
    for at in range(len(other) - _RUN - 1):
        run = next((i for i, (a, b) in enumerate(zip(own, other[at:], strict=False)) if a != b), 0)
        tail = [term for term in own[run:] if not _USUAL.fullmatch(term)]
        if run >= _RUN and not set(tail) & set(other[at + run :]):
            return tail
    return []


def _negates(said: str, part: str) -> bool:
    """True if one of two sentences says "not" before a word of the other, which has no "not"."""
    (mine, my_nots), (theirs, their_nots) = map(_denied, (said, part))
    return bool(my_nots & theirs or their_nots & mine) and not (my_nots and their_nots)


def _denied(text: str) -> tuple[set[str], set[str]]:
    """The words of a sentence without a yes or no before it, and those right after one that denies them."""
    words = _WORD.findall(_REPLY.sub("", text, count=1))
    nots = _nots(words)
    nots = [] if _is_double(words, nots) else nots
    after = (next((word for word in words[i + 1 : i + 4] if len(word) > 3), "") for i in nots)
    return set(map(_stem, words)), set(map(_stem, filter(None, after)))


def _terms(*texts: str) -> set[str]:
    return {term for text in texts for term, _ in _words(text)}


def _words(text: str) -> _Words:
    return [
        (_sign(text, match) + _stem(match[0]), _is_bound(match[0], text, match.start()))
        for match in _WORD.finditer(text)
    ]


def _sign(text: str, match: re.Match[str]) -> str:
    """The minus before a number, which brackets around a fraction or thousands mean, too."""
    before, after = text[max(match.start() - 3, 0) : match.start()], text[match.end() : match.end() + 1]
    before = before.rstrip("$€£")[-2:]
    is_minus = before[-1:] in ("-", "\u2212") and not before[:-1].strip("( ")
    is_bracketed = before[-1:] == "(" and after == ")" and re.search(r"\d[.,]\d", match[0])
    return "-" if match[0][-1].isdigit() and (is_minus or is_bracketed) else ""


def _nots(words: Sequence[str]) -> list[int]:
    """Places of the words that deny; "Invoice No 4471" denies nothing."""
    pairs = zip(words, [*words[1:], ""], strict=False)
    return [
        i
        for i, (word, after) in enumerate(pairs)
        if _NOT.fullmatch(word) and not (word == "No" and after[-1:].isdigit())
    ]


def _is_double(words: Sequence[str], nots: Sequence[int]) -> bool:
    """True for a sentence such as "not without consent", which is no plain yes or no."""
    return len(nots) > 1 and any(_WITHOUT.fullmatch(words[i]) for i in nots)


def _has_terms(text: str) -> bool:
    """True where such a sentence says on which terms."""
    words = _WORD.findall(text)
    return _is_double(words, _nots(words))


def _is_bound(word: str, text: str, at: int) -> bool:
    """True for a number, its scale, or a name."""
    return (
        (stem := _stem(word))[-1].isdigit()
        or stem in SCALES
        or (len(word) > 1 and word[0].isupper() and not is_first_word(text, at))
    )


def _stem(word: str) -> str:
    """As words are compared: folded, without the ending of a possessive or a plural; a number in figures,
    without its marks."""
    folded = re.sub(r"(?<=\d)[.,](?=\d{3}\b)|['’]s?$", "", word.casefold())  # noqa: RUF001
    if (same := CANONICAL.get(folded)) or folded[-1:].isdigit():
        return same or folded.replace(",", ".").replace(":", ".")
    return folded[:-1] if len(folded) > 3 and folded.endswith("s") and not folded.endswith("ss") else folded


def _pattern(term: str) -> str:
    """The pattern of the words that are compared as one."""
    begins = rf"(?<!\w){re.escape(term)}"
    return f"{begins}|{same}" if (same := spellings(term)) else begins
